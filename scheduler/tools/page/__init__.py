"""
The page: rules by domain, pending pods, decisions, rates.

    request -> answers: of a page of ours? parameters, shared? -> cluster_page: ask a view -> JSON -> ui

Views are pure, computed from state, queue and attempts. `cluster_page` is the view that `run` is given, with the
routes; `what_if_service` answers what takes a decision, `rule_survey` gathers the rules, `files` has what the browser
gets.
"""

"""
The page: rules by domain, pending pods, decisions, rates.

Views are pure, computed from state, queue and attempts. `cluster_page` is the view that `run` is given; `api` has the
routes, `access` says who may see what, `files` and `ui` are what the browser gets.
"""

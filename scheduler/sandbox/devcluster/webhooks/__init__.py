"""
Admission webhooks: servers that are asked about every new pod before it is stored.

    matching   the webhooks of a pod
    calling    one call of one webhook, over HTTPS
    dispatch   all webhooks of one pod, and then the store

Webhooks are asked about pods alone, and about their creation alone. `admission.webhook_rules` says which
configurations may be stored.
"""

"""
Authentication and authorization of requests.

    authentication  tokens, and the users they belong to: the administrator and ServiceAccounts
    rbac            what roles and bindings allow a user
    reviews         token and access reviews in the API

A request without a token is the administrator's, unless the cluster was given a token of its own. `http.authorization`
asks `rbac` about every request; `admission.strategies` says which roles and bindings may be stored.
"""

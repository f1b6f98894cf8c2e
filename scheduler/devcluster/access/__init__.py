"""
Who asks, and what they may.

    authenticator  tokens, and whose they are: the administrator's, and those of ServiceAccounts
    rbac        whether roles and bindings let somebody do something
    guarding    every request is authorize
    rules       which roles and bindings may be stored

`reviews`, beside this folder, answers the same questions over the API. Whoever brings no token is the administrator,
unless the cluster was given a token of its own.
"""

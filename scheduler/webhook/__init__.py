"""
The admission webhook: a process of its own that the API server asks about every new pod.

Pure: `reviews` (what is asked and answered), `mutating`, `validating` and what they are made of. Around them:
`server` (HTTPS), `keeping` and `storing` (who the API server trusts), `app` (start and stop).
Imports `model`, `kube`, `observe` and `serving`; only `cli` imports it.
"""

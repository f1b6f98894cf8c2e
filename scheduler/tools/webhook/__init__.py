"""
The admission webhook, which runs as a separate process.

Pure: `reviews` (AdmissionReview), `mutating`, `validating` and the modules that they import. The others: `server`
(HTTPS), `certificate_rotation` and `certificate_store` (the serving certificate), `metrics`, `app` (start and stop).
Imports `model`, `kube`, `metrics` and `port`; only `cli` imports it.
"""

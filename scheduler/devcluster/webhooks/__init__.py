"""
WebhookAdmission webhooks: the servers that are asked about every pod before it is stored.

    rules       which configurations may be stored
    matching    which webhooks a pod matches
    calling     one question to one webhook, over HTTPS
    admission   all webhooks about one pod, and then the store

Pods are the only objects, and their creation the only operation, that webhooks are asked about here.
"""

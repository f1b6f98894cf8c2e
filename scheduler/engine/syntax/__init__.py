"""
The grammar of names, labels, selectors and quantities in Kubernetes' objects, and the errors for what breaks it.

    names           label keys and values, DNS labels and subdomains
    selectors       label selectors as values
    quantity        amounts of a resource
    durations       spans of time as Go writes them
    field_errors    one broken rule: a path, a reason and a sentence
    json_fields     fields of JSON that is not checked yet
    affinity_rules  the rules of affinity terms, spread constraints and the selectors in them

The product and the embedded cluster both import this room. It is pure and imports no other.
"""

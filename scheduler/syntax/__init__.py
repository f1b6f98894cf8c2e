"""
What Kubernetes' objects are written in: the grammar of names, labels, selectors and quantities, and its errors.

    names           label keys and values, DNS labels and subdomains
    selectors       label selectors as values
    quantity        amounts of a resource
    field_errors    one broken rule: a path, a reason and a sentence
    affinity_rules  the rules of affinity terms, spread constraints and the selectors in them

The product and the embedded cluster both import this room. It is pure and imports no other.
"""

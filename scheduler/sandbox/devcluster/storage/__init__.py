"""
Versioned objects in memory, and every way to read and write them.

    history           revisions of every object, the bounded past, and readers that follow it
    store             the verbs, with their rules
    lists, request_selectors   lists, pages and selectors of requests
    patches, strategic_merge   the four kinds of patches
    deletion          grace, finalizers, dependents, namespaces
    binding, eviction, scale   subresources
"""

"""
The demo: stories of pods that care about their neighbours, played on an embedded cluster.

    command            starts a cluster and the scheduler, and plays the stories
    stories            one story each
    stage              the commands and checks of a story, and its map of the cluster
    api, pod_watch     the cluster as a user's program sees it, by kubernetes-asyncio
    rule_check         which rules are broken, judged without the product's code
    processes          the cluster, and commands of the product
    waiting            until any of them is where a story wants it
    examples, display  manifests, the screen

The demo knows the cluster by HTTP and the product by its commands; it imports neither.
"""

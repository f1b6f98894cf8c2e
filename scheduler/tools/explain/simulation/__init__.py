"""
A cluster in memory in which the scheduler's own machine places pods: for questions of what would happen.

The room is pure: no IO, no clock, no output. Nothing in it decides where a pod goes; `World` drives
`engine.core.machine` and answers as the API server, its controllers and the kubelets would. It knows no plugin.
"""

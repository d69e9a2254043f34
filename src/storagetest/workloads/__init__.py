"""One module a workload: what load it puts on an attachment."""

"""The YAML that ParallelCluster reads, for clusters and for images, rendered from an environment. Pure: no AWS and no CDK."""

"""The Kubernetes engine: an Amazon EKS cluster, its Trainium node groups, and what is installed in it."""

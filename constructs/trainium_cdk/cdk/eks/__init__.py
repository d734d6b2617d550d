"""The Kubernetes engine: an Amazon EKS cluster, its Trainium node groups, and the software installed in it."""

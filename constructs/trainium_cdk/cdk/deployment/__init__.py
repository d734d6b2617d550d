"""The function that serves a stack's custom resources. It runs in AWS Lambda: standard library and boto3 only.

A function for each type of resource: `(request, client) -> Response`.
"""

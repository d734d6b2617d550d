"""The function that serves a stack's custom resources. It runs in AWS Lambda: standard library and boto3 only.

One module for each type of resource, with a function `respond(request, client) -> Response`.
"""

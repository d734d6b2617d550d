"""The function that starts and stops Trainium nodes for gangs. It runs in AWS Lambda: standard library and boto3 only."""

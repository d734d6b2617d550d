"""`Custom::TrnNodeScripts` copies objects into a bucket, and never deletes one: nodes that are starting may still need the old ones.

Properties: Bucket, Objects (each with Source, BUCKET/KEY, and Key).
"""

from __future__ import annotations

from .request import Client, Request, Response


def respond(request: Request, client: Client) -> Response:
    """Physical id: constant, as an update deletes nothing."""
    if not request.delete:
        s3 = client("s3")
        for item in request.properties["Objects"]:
            bucket, _, key = item["Source"].partition("/")
            source = {"Bucket": bucket, "Key": key}
            s3.copy_object(Bucket=request.properties["Bucket"], Key=item["Key"], CopySource=source)
    return Response(request.physical_id or "node-scripts")

"""A real server that speaks S3, on a port of the loopback: moto's, in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "ullage-texts"


@contextmanager
def serve_s3() -> Iterator[Mapping[str, str]]:
    """Run a server with an empty bucket; yield the variables by which clients find it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        url = f"http://127.0.0.1:{port}"
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield {
            **{name.upper(): value for name, value in keys.items()},
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        server.stop()

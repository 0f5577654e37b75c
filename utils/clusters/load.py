"""
Commands that do nothing but sleep, sent to a cluster by a client that waits for all of them at once.

It speaks to the server with the messages that come with BuildGrid, in one thread, and never asks for what it sent.
"""

import asyncio
import hashlib
import time
from typing import Any, List, NamedTuple, Tuple

import grpc.aio
from benchmark.mistake import Failed
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as reapi
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2_grpc as services
from google.protobuf.duration_pb2 import Duration

PATIENCE = 120  # seconds for a command beyond its own
BATCH = 500  # blobs in one upload


class Sent(NamedTuple):
	"""What a command took, in seconds: from sending it until its result was here, and until a worker had it."""

	begin: float
	seconds: float
	waited: float


def blob(message: Any) -> Tuple[Any, bytes]:
	data = message.SerializeToString()
	return reapi.Digest(hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data)), data


class Client:
	"""One connection to a server, for one event loop."""

	def __init__(self, address: str, instance: str) -> None:
		self.instance = instance
		self.channel = grpc.aio.insecure_channel(address)
		self.execution = services.ExecutionStub(self.channel)
		self.contents = services.ContentAddressableStorageStub(self.channel)

	async def upload(self, blobs: List[Tuple[Any, bytes]]) -> None:
		for start in range(0, len(blobs), BATCH):
			request = reapi.BatchUpdateBlobsRequest(instance_name=self.instance)
			for digest, data in blobs[start : start + BATCH]:
				request.requests.add(digest=digest, data=data)
			answer = await self.contents.BatchUpdateBlobs(request, timeout=PATIENCE)
			bad = [each.status.message for each in answer.responses if each.status.code]
			if bad:
				raise Failed("the server does not take contents: %s" % bad[0])

	async def prepare(self, first: int, count: int, seconds: float) -> List[Any]:
		"""Upload so many commands, each of which differs from all others; the digests of their actions."""
		root, data = blob(reapi.Directory())
		blobs, actions = [(root, data)], []
		limit = Duration(seconds=int(seconds) + PATIENCE)
		for number in range(first, first + count):
			command = reapi.Command(arguments=["/bin/sleep", "%g" % seconds])
			command.environment_variables.add(name="NUMBER", value=str(number))
			known = blob(command)
			action = reapi.Action(command_digest=known[0], input_root_digest=root, timeout=limit, do_not_cache=True)
			blobs += [known, blob(action)]
			actions.append(blobs[-1][0])
		await self.upload(blobs)
		return actions

	async def execute(self, action: Any, seconds: float) -> Sent:
		"""Run one, and wait for it."""
		request = reapi.ExecuteRequest(instance_name=self.instance, skip_cache_lookup=True, action_digest=action)
		begin, now = time.monotonic(), time.time()
		async for operation in self.execution.Execute(request, timeout=PATIENCE + seconds):
			if operation.done:
				took = time.monotonic() - begin
				result = reapi.ExecuteResponse()
				if not operation.response.Unpack(result) or result.status.code or result.result.exit_code:
					raise Failed("a command did not run: %s" % (result.status.message or operation.error.message))
				began = result.result.execution_metadata.worker_start_timestamp.ToNanoseconds() / 1e9
				return Sent(begin, took, began - now)
		raise Failed("the server did not say what became of a command")


async def keep_busy(client: Client, actions: List[Any], seconds: float, at_once: int) -> List[Sent]:
	"""Run all of them, so many at once: as soon as one has ended, the next one is sent."""
	waiting = iter(actions)
	done: List[Sent] = []

	async def go_on() -> None:
		for action in waiting:
			done.append(await client.execute(action, seconds))

	await asyncio.gather(*(go_on() for _ in range(at_once)))
	return done

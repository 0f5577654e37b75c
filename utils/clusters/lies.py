"""
Lies of a worker: its results are changed on their way to the server, and so are the contents that they name.

A worker can always tell a lie that has no mark, which is why clusters are trusted. These lies have one.
"""

import hashlib
import random
import threading
from typing import Any, Callable, Dict, Optional

from benchmark.servers import LOOPBACK

from .buildgrid import INSTANCE

UPDATE = "/google.devtools.remoteworkers.v1test2.Bots/UpdateBotSession"
KEY, ENTRY = ".wafd/key", ".wafd/entry"
PATIENCE = 20  # seconds


class Liar:
	"""Changes the results of commands that a worker tells the server; `told` counts them."""

	def __init__(self, port: int, lie: str, rng: random.Random) -> None:
		import grpc  # BuildGrid brings all of them
		from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as messages
		from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2_grpc as stubs
		from buildgrid._protos.google.devtools.remoteworkers.v1test2 import bots_pb2

		self.messages, self.bots = messages, bots_pb2
		self.channel = grpc.insecure_channel("%s:%d" % (LOOPBACK, port))
		self.contents = stubs.ContentAddressableStorageStub(self.channel)
		self.rng, self.lock = rng, threading.Lock()
		self.lie: Callable[[Any], bool] = LIES[lie].__get__(self)
		self.before: Dict[bytes, Any] = {}
		self.told = 0

	def close(self) -> None:
		self.channel.close()

	def change(self, method: str, request: bytes) -> bytes:
		"""For `Line.change`."""
		if method != UPDATE:
			return request
		update = self.bots.UpdateBotSessionRequest.FromString(request)
		for lease in update.bot_session.leases:
			result = self.messages.ActionResult()
			if lease.state != self.bots.COMPLETED or not lease.result.Unpack(result):
				continue
			with self.lock:
				if self.lie(result):
					self.told += 1
					lease.result.Pack(result)
		return bytes(update.SerializeToString())

	# ---- contents

	def read(self, digest: Any) -> bytes:
		request = self.messages.BatchReadBlobsRequest(instance_name=INSTANCE, digests=[digest])
		(one,) = self.contents.BatchReadBlobs(request, timeout=PATIENCE).responses
		return bytes(one.data)

	def write(self, content: bytes) -> Any:
		digest = self.messages.Digest(hash=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
		request = self.messages.BatchUpdateBlobsRequest(instance_name=INSTANCE)
		request.requests.add(digest=digest, data=content)
		self.contents.BatchUpdateBlobs(request, timeout=PATIENCE)
		return digest

	def file(self, result: Any, path: str) -> Optional[Any]:
		return next((file for file in result.output_files if file.path == path), None)

	def content(self, file: Any) -> bytes:
		return bytes(file.contents) or self.read(file.digest)

	def replace(self, file: Any, content: bytes) -> None:
		"""Another content of a file, with its right digest."""
		file.contents = b""
		file.digest.CopyFrom(self.write(content))

	def flipped(self, content: bytes, first: int = 0) -> bytes:
		"""With one bit changed, behind the first bytes."""
		where = self.rng.randrange(first, len(content))
		return content[:where] + bytes([content[where] ^ 1 << self.rng.randrange(8)]) + content[where + 1 :]

	# ---- lies; each returns whether there was something to lie about

	def digest(self, result: Any) -> bool:
		"""a digest of which there is no content"""
		for file in result.output_files:
			file.contents = b""
			file.digest.hash = "%064x" % self.rng.getrandbits(256)
		return bool(result.output_files)

	def size(self, result: Any) -> bool:
		"""sizes that are absurd"""
		for file in result.output_files:
			file.contents = b""
			file.digest.size_bytes = self.rng.choice((0, -1, 1 << 40, (1 << 63) - 1))
		return bool(result.output_files)

	def blob(self, result: Any) -> bool:
		"""outputs of another content"""
		changed = False
		for folder in result.output_directories:
			tree = self.messages.Tree.FromString(self.read(folder.tree_digest))
			for file in tree.root.files:
				self.replace_node(file)
				changed = True
			folder.tree_digest.CopyFrom(self.write(tree.SerializeToString()))
		return changed

	def replace_node(self, node: Any) -> None:
		content = self.read(node.digest)
		node.digest.CopyFrom(self.write(self.flipped(content) if content else b"more"))

	def no_blob(self, result: Any) -> bool:
		"""an entry without the contents that it names"""
		had = bool(result.output_directories)
		del result.output_directories[:]
		return had

	def entry(self, result: Any) -> bool:
		"""bytes that are no entry"""
		file = self.file(result, ENTRY)
		if not file:
			return False
		content = self.content(file)
		self.replace(file, self.rng.choice((b"", content[:-1], content + b"\0", b"x" * len(content))))
		return True

	def fact(self, result: Any) -> bool:
		"""an entry with one bit changed: in a digest, a path, a size"""
		file = self.file(result, ENTRY)
		if not file:
			return False
		self.replace(file, self.flipped(self.content(file), 4))
		return True

	def key(self, result: Any) -> bool:
		"""the right entry under another key"""
		file = self.file(result, KEY)
		if not file:
			return False
		self.replace(file, b"%064x\n" % self.rng.getrandbits(256))
		return True

	def other(self, result: Any) -> bool:
		"""the whole result of another command"""
		return self.swap(result, False)

	def renamed(self, result: Any) -> bool:
		"""the result of another command under this one's key"""
		return self.swap(result, True)

	def swap(self, result: Any, keeps_key: bool) -> bool:
		key = self.file(result, KEY)
		if not key:
			return False
		mine, right = self.messages.ActionResult(), self.messages.OutputFile()
		mine.CopyFrom(result)
		right.CopyFrom(key)
		own = self.content(key)
		others = [self.before[name] for name in sorted(self.before) if name != own]
		self.before[own] = mine
		if not others:
			return False
		result.CopyFrom(self.rng.choice(others))
		if keeps_key:
			self.file(result, KEY).CopyFrom(right)  # type: ignore[union-attr]
		return True

	def nothing(self, result: Any) -> bool:
		"""no outputs at all, and success"""
		result.Clear()
		return True


LIES = {
	"digest": Liar.digest,
	"size": Liar.size,
	"blob": Liar.blob,
	"no-blob": Liar.no_blob,
	"entry": Liar.entry,
	"fact": Liar.fact,
	"key": Liar.key,
	"other": Liar.other,
	"renamed": Liar.renamed,
	"nothing": Liar.nothing,
}

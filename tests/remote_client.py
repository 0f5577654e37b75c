"""A small client of the Remote Execution API, which has a cluster run commands, as other build tools do."""

import concurrent.futures
import hashlib
import pathlib
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Union

from cache_support import PATIENCE
from cluster_support import INSTANCE, Cluster

Tree = Dict[str, Union[bytes, "Program", "Link", None]]


class Program(bytes):
	"""The content of a file that may be executed."""


class Link(str):
	"""Where a link leads."""


class Refused(Exception):
	"""The cluster's status of an action that has no result."""

	def __init__(self, status: Any) -> None:
		super().__init__(f"{status.code}: {status.message}")
		self.code, self.message = status.code, status.message


class Result(NamedTuple):
	status: int
	stdout: str
	stderr: str
	files: Dict[str, bytes]
	worker: str


class Client:
	"""Uploads what an action needs, and waits for its result. The cluster speaks no TLS."""

	def __init__(self, cluster: Cluster) -> None:
		import grpc  # BuildGrid brings all of them
		from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as messages
		from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2_grpc as stubs
		from buildgrid._protos.google.bytestream import bytestream_pb2, bytestream_pb2_grpc

		self.channel = grpc.insecure_channel(f"127.0.0.1:{cluster.port}")
		self.messages = messages
		self.cas = stubs.ContentAddressableStorageStub(self.channel)
		self.bytestream, self.streams = bytestream_pb2, bytestream_pb2_grpc.ByteStreamStub(self.channel)
		self.execution = stubs.ExecutionStub(self.channel)
		self.threads = concurrent.futures.ThreadPoolExecutor(16)

	def digest(self, content: bytes) -> Any:
		return self.messages.Digest(hash=hashlib.sha256(content).hexdigest(), size_bytes=len(content))

	def upload(self, blobs: Iterable[bytes]) -> None:
		request = self.messages.BatchUpdateBlobsRequest(instance_name=INSTANCE)
		for content in blobs:
			request.requests.add(digest=self.digest(content), data=content)
		answer = self.cas.BatchUpdateBlobs(request, timeout=PATIENCE)
		assert not any(one.status.code for one in answer.responses), answer

	def read(self, digest: Any) -> bytes:
		if digest.size_bytes > LARGE:
			name = f"{INSTANCE}/blobs/{digest.hash}/{digest.size_bytes}"
			pieces = self.streams.Read(self.bytestream.ReadRequest(resource_name=name), timeout=PATIENCE)
			return b"".join(piece.data for piece in pieces)
		request = self.messages.BatchReadBlobsRequest(instance_name=INSTANCE, digests=[digest])
		(one,) = self.cas.BatchReadBlobs(request, timeout=PATIENCE).responses
		assert one.status.code == 0, one.status
		return bytes(one.data)

	def pack(self, tree: Tree, blobs: List[bytes]) -> Any:
		"""The digest of a folder. A name with slashes is a path; None is an empty folder."""
		folder = self.messages.Directory()
		below: Dict[str, Tree] = {}
		for path, content in tree.items():
			name, _, rest = path.partition("/")
			if rest:
				below.setdefault(name, {})[rest] = content
			elif content is None:
				below.setdefault(name, {})
			elif isinstance(content, Link):
				folder.symlinks.add(name=name, target=content)
			else:
				blobs.append(content)
				is_program = isinstance(content, Program)
				folder.files.add(name=name, digest=self.digest(content), is_executable=is_program)
		for name in below:
			folder.directories.add(name=name, digest=self.pack(below[name], blobs))
		for nodes in (folder.files, folder.symlinks, folder.directories):
			nodes.sort(key=lambda node: node.name)
		blobs.append(folder.SerializeToString())
		return self.digest(blobs[-1])

	def prepare(
		self,
		argv: List[str],
		tree: Tree,
		outputs: Iterable[str] = (),
		folder: str = "",
		lost: Iterable[bytes] = (),
		seconds: int = 0,
		platform: Optional[Dict[str, str]] = None,
		**variables: str,
	) -> Any:
		"""Upload an action, except for what is `lost`; its digest."""
		blobs: List[bytes] = []
		root = self.pack(tree, blobs)
		command = self.messages.Command(arguments=argv, output_paths=sorted(outputs), working_directory=folder)
		for name in sorted(variables):
			command.environment_variables.add(name=name, value=variables[name])
		for name, value in (platform or {}).items():
			command.platform.properties.add(name=name, value=value)
		blobs.append(command.SerializeToString())
		action = self.messages.Action(command_digest=self.digest(blobs[-1]), input_root_digest=root, do_not_cache=True)
		action.platform.CopyFrom(command.platform)
		if seconds:
			action.timeout.seconds = seconds
		blobs.append(action.SerializeToString())
		self.upload(blob for blob in blobs if blob not in lost)
		return self.digest(blobs[-1])

	def execute(self, action: Any) -> Result:
		request = self.messages.ExecuteRequest(instance_name=INSTANCE, action_digest=action, skip_cache_lookup=True)
		for operation in self.execution.Execute(request, timeout=2 * PATIENCE):
			if operation.done:
				break
		else:
			raise AssertionError("the stream has ended before the action")
		response = self.messages.ExecuteResponse()
		assert operation.response.Unpack(response), operation
		if response.status.code:
			raise Refused(response.status)
		return self.gather(response.result)

	def gather(self, result: Any) -> Result:
		files = {file.path: self.read(file.digest) for file in result.output_files}
		for folder in result.output_directories:
			tree = self.messages.Tree.FromString(self.read(folder.tree_digest))
			known = {self.digest(child.SerializeToString()).hash: child for child in tree.children}
			left = [(folder.path, tree.root)]
			while left:
				path, directory = left.pop()
				files.update({f"{path}/{file.name}": self.read(file.digest) for file in directory.files})
				left += [(f"{path}/{child.name}", known[child.digest.hash]) for child in directory.directories]
		files.update({link.path: b"-> " + link.target.encode() for link in result.output_symlinks})

		def text(raw: bytes, digest: Any) -> str:
			return (self.read(digest) if digest.size_bytes else raw).decode()

		return Result(
			result.exit_code,
			text(result.stdout_raw, result.stdout_digest),
			text(result.stderr_raw, result.stderr_digest),
			files,
			result.execution_metadata.worker,
		)

	def run(self, argv: List[str], tree: Optional[Tree] = None, **options: Any) -> Result:
		return self.execute(self.prepare(argv, tree or {}, **options))

	def begin(
		self, argv: List[str], tree: Optional[Tree] = None, **options: Any
	) -> "concurrent.futures.Future[Result]":
		"""The same, without waiting."""
		return self.threads.submit(self.run, argv, tree, **options)


LARGE = 4 << 20
OUTPUTS = [f".wafd/{name}" for name in ("key", "entry", "why", "blobs")]


def mirror(*folders: pathlib.Path) -> Tree:
	"""What is in these folders, at the paths where it is."""
	tree: Tree = {}
	for folder in folders:
		tree[str(folder)[1:]] = None
		for path in folder.rglob("*"):
			name = str(path)[1:]
			if path.is_symlink():
				tree[name] = Link(path.readlink())
			elif path.is_dir():
				tree[name] = None
			else:
				tree[name] = path.read_bytes()
	return tree

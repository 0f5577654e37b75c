"""A worker of another make: it knows nothing of ours, and does what the Remote Execution API says."""

import contextlib
import os
import pathlib
import subprocess
import threading
import traceback
from typing import Any, Iterator, List, Tuple

from cache_support import PATIENCE
from cluster_support import INSTANCE, Cluster
from remote_client import Client

TURN = 5  # seconds that the server may wait for something to do
FILE_MODE, PROGRAM_MODE = 0o444, 0o555


class ForeignWorker:
	"""
	Lays out the inputs of each command in a folder of its own, and runs it there below the words `before` it, as
	the user who owns `folder`. `seen` has what became of each command: its status and its messages.
	"""

	def __init__(self, cluster: Cluster, folder: pathlib.Path, before: Tuple[str, ...] = ()) -> None:
		from buildgrid._protos.google.devtools.remoteworkers.v1test2 import bots_pb2, bots_pb2_grpc, worker_pb2

		self.client = Client(cluster)
		self.messages, self.bots, self.workers = self.client.messages, bots_pb2, worker_pb2
		self.stub = bots_pb2_grpc.BotsStub(self.client.channel)
		self.folder, self.before = folder, list(before)
		self.user = folder.stat().st_uid
		self.seen: List[Tuple[int, str]] = []
		self.is_wanted = True
		self.trouble = ""
		self.thread = threading.Thread(target=self.work, daemon=True)

	@contextlib.contextmanager
	def run(self) -> Iterator["ForeignWorker"]:
		self.thread.start()
		try:
			yield self
		finally:
			self.is_wanted = False
			self.thread.join(PATIENCE)
			self.client.channel.close()
			assert not self.trouble, self.trouble

	def work(self) -> None:
		try:
			self.serve()
		except Exception:
			self.trouble = traceback.format_exc()

	def serve(self) -> None:
		bots = self.bots
		worker = self.workers.Worker(devices=[self.workers.Device(handle="foreign")])
		session = bots.BotSession(bot_id=f"foreign-{os.getpid()}", status=bots.OK, worker=worker)
		request = bots.CreateBotSessionRequest(parent=INSTANCE, bot_session=session)
		session = self.stub.CreateBotSession(request, timeout=PATIENCE)
		while self.is_wanted:
			for lease in session.leases:
				if lease.state in (bots.PENDING, bots.ACTIVE):
					lease.result.Pack(self.execute(lease.payload))
					lease.state = bots.COMPLETED
			update = bots.UpdateBotSessionRequest(name=session.name, bot_session=session)
			session = self.stub.UpdateBotSession(update, timeout=TURN)

	def message(self, kind: Any, digest: Any) -> Any:
		return kind.FromString(self.client.read(digest))

	def execute(self, payload: Any) -> Any:
		"""The result of an action."""
		action = self.messages.Action()
		assert payload.Unpack(action), payload
		command = self.message(self.messages.Command, action.command_digest)
		place = self.folder / str(len(self.seen))
		self.lay_out(action.input_root_digest, place)
		for name in command.output_paths:
			self.make(place / command.working_directory / pathlib.Path(name).parent)
		return self.run_command(command, place)

	def make(self, folder: pathlib.Path) -> None:
		if not folder.is_dir():
			self.make(folder.parent)
			folder.mkdir()
			os.chown(folder, self.user, self.user)

	def lay_out(self, digest: Any, place: pathlib.Path) -> None:
		folder = self.message(self.messages.Directory, digest)
		self.make(place)
		assert not folder.symlinks, "many workers refuse links"
		for file in folder.files:
			path = place / file.name
			path.write_bytes(self.client.read(file.digest))
			path.chmod(PROGRAM_MODE if file.is_executable else FILE_MODE)
		for child in folder.directories:
			self.lay_out(child.digest, place / child.name)

	def run_command(self, command: Any, place: pathlib.Path) -> Any:
		work = place / command.working_directory
		done = subprocess.run(
			[*self.before, *command.arguments],
			cwd=work,
			env={one.name: one.value for one in command.environment_variables},
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.STDOUT,
			timeout=PATIENCE,
			check=False,
			user=self.user,
			group=self.user,
			extra_groups=[],
		)
		self.seen.append((done.returncode, done.stdout.decode(errors="replace")))
		result = self.messages.ActionResult(exit_code=done.returncode)
		blobs: List[bytes] = []
		for name in command.output_paths:
			self.take(result, name, work / name, blobs)
		self.client.upload(blobs)
		return result

	def take(self, result: Any, name: str, path: pathlib.Path, blobs: List[bytes]) -> None:
		if path.is_file():
			blobs.append(path.read_bytes())
			result.output_files.add(path=name, digest=self.client.digest(blobs[-1]))
		elif path.is_dir():
			tree = self.messages.Tree()
			for file in sorted(path.iterdir()):
				blobs.append(file.read_bytes())
				tree.root.files.add(name=file.name, digest=self.client.digest(blobs[-1]))
			blobs.append(tree.SerializeToString())
			result.output_directories.add(path=name, tree_digest=self.client.digest(blobs[-1]))

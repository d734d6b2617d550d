"""Train a small language model in JAX, on all NeuronCores of all nodes: `trn submit train.py --launcher jax --nodes 2`.

It continues from its newest checkpoint. When it must end (a time limit, a spot interruption), it saves one first.
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--batch", type=int, default=16, help="sequences of each device")
args = parser.parse_args()
WORDS, LENGTH, WIDTH = 64, 32, 64

# JAX itself reads the coordinator's address, from JAX_COORDINATOR_ADDRESS.
count, index = int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
jax.distributed.initialize(num_processes=count, process_id=index)
mesh = Mesh(np.array(jax.devices()), ("data",))
everywhere, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
optimizer = optax.adamw(1e-3)


def begin() -> dict:
    """The same weights on each process. NumPy makes them: JAX's generators are not all supported on Neuron."""
    made = {"embed": (WORDS, WIDTH), "place": (LENGTH, WIDTH), "qkv": (WIDTH, 3 * WIDTH)}
    made |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    random = np.random.default_rng(0)
    weights = {name: jnp.asarray(random.normal(0, 0.05, shape), jnp.float32) for name, shape in made.items()}
    return jax.device_put({"weights": weights, "optimizer": optimizer.init(weights)}, everywhere)


def batch(step: int) -> jax.Array:
    """This process's part of a step's sequences, which follow a rule that the model can learn."""
    random = np.random.default_rng((step, index))
    first = random.integers(0, WORDS, (args.batch * jax.local_device_count(), 1))
    return jax.make_array_from_process_local_data(shared, (first + 7 * np.arange(LENGTH + 1) ** 2) % WORDS)


def loss_of(weights: dict, tokens: jax.Array) -> jax.Array:
    x = weights["embed"][tokens[:, :-1]] + weights["place"]
    q, k, v = jnp.split(x @ weights["qkv"], 3, axis=-1)
    seen = jnp.where(jnp.tri(LENGTH, dtype=bool), q @ k.mT / WIDTH**0.5, -1e9)
    x = x + jax.nn.softmax(seen) @ v
    x = x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]
    return optax.softmax_cross_entropy_with_integer_labels(x @ weights["embed"].T, tokens[:, 1:]).mean()


@jax.jit
def train(state: dict, tokens: jax.Array) -> tuple[dict, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(state["weights"], tokens)
    change, kept = optimizer.update(gradients, state["optimizer"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], change), "optimizer": kept}, loss


options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=args.save_every)
with ocp.CheckpointManager(os.environ["TRN_CHECKPOINTS"], options=options) as checkpoints:
    state, last = begin(), checkpoints.latest_step() or 0
    if last:
        state = checkpoints.restore(last, args=ocp.args.StandardRestore(state))
        print(f"continues from step {last}", flush=True)
    for step in range(last + 1, args.steps + 1):
        state, loss = train(state, batch(step))
        print(f"step {step}/{args.steps} loss {loss:.4f}", flush=True)
        # It saves at each interval, and once SIGTERM has reached a process.
        checkpoints.save(step, args=ocp.args.StandardSave(state))
        if checkpoints.reached_preemption(step):
            checkpoints.wait_until_finished()
            print(f"saved step {step}, to end in time", flush=True)
            raise SystemExit(143)

"""The memory of devices."""

import jax


def free_memory(device: jax.Device) -> int | None:
    """Bytes that a program may still take on a device; None where the device does not say, as a CPU does not."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"] if stats and "bytes_limit" in stats else None


def first_device() -> jax.Device:
    """The device on which arrays are put unless another is named."""
    chosen = getattr(jax.config, "jax_default_device", None)
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]

"""A federated model of texts: a character LSTM that is trained whole, and a transformer of which adapters are trained.

    python examples/adapters.py

Twelve clients hold sentences in three made-up languages, most of them in one; the model names the language of eight
characters. Of the transformer only the adapters and the last layer travel, and the table shows what that saves.
"""

import numpy as np

from fedpick import PowerOfChoice
from fedpick.sim import CharLSTM, Federation, Local, ModelSpec, Transformer, simulate

LETTERS = ("aeioust", "bknrzud", "hilmqwx")
K, EACH, LENGTH = 12, 60, 8


def sentences(seed: int = 0) -> Federation:
    """Eight characters of a language as bytes; client k speaks language k mod 3, and others now and then."""
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(K), EACH)
    language = np.where(rng.random(len(client)) < 0.8, client % 3, rng.integers(0, 3, len(client)))
    x = np.array([list(rng.choice(list(LETTERS[label].encode()), LENGTH)) for label in language], np.uint8)
    return Federation.from_arrays(x, language, client, test_share=0.2, name="made-up languages")


def main(rounds: int = 40) -> dict[str, tuple[float, int]]:
    """The test accuracy and the bytes of a model by its name."""
    federation, found = sentences(), {}
    models: dict[str, tuple[ModelSpec, float]] = {
        "CharLSTM": (CharLSTM(128, 8, 32), 0.5),
        "Transformer": (Transformer(32, 1, 2, vocabulary=128), 0.1),
    }
    print(f"{'model':12s} accuracy   bytes of a model   bytes sent")
    for name, (model, eta) in models.items():
        local = Local(tau=5, b=16, eta=eta, optimizer="momentum")
        result = simulate(federation, model, PowerOfChoice(m=2, d=4), local, rounds=rounds, every=rounds)
        accuracy = float(result.metrics["test_accuracy"][0, -1])
        sent = int(result.costs["bytes_up"].sum() + result.costs["bytes_down"].sum())
        print(f"{name:12s} {accuracy:8.0%}   {result.model_bytes:16,}   {sent:10,}")
        found[name] = accuracy, result.model_bytes
    return found


if __name__ == "__main__":
    main()

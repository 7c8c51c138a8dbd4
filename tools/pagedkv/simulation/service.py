"""The stated part of a workload: how long a step takes, and how large the pool is."""

from dataclasses import dataclass

from pagedkv.spec import Config, Misuse

POOL = Config(num_blocks=8_192, block_size=16)
"""For the bundled arrivals: 131,072 tokens, a size that makes the engine preempt now and then and not all the time.
At 128 KiB a token (32 layers, 8 KV heads of 128, 16 bits) that is 16 GiB."""


@dataclass(frozen=True)
class ServiceModel:
    """How long one step takes: base + per running conversation + per prompt token computed in it.

    The constants are of the order of a 7 to 8 billion parameter model on one data-centre GPU. They are stated, not
    fitted: they set how many conversations overlap, and no result of the checks depends on them.
    """

    base_s: float = 0.020
    per_conversation_s: float = 0.0003
    per_prompt_token_s: float = 0.00005
    max_prompt_tokens: int = 8_192
    """A step takes no further prompt once it computes this many tokens of prompts."""

    def __post_init__(self) -> None:
        for name in ("base_s", "per_conversation_s", "per_prompt_token_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise Misuse(name, getattr(self, name), "a number of seconds >= 0")
        if self.max_prompt_tokens < 1:
            raise Misuse("max_prompt_tokens", self.max_prompt_tokens, "an integer >= 1")

    def step_s(self, conversations: int, prompt_tokens: int) -> float:
        """Service time of a step.

        >>> round(ServiceModel().step_s(100, 1_000), 3)
        0.1
        """
        return self.base_s + self.per_conversation_s * conversations + self.per_prompt_token_s * prompt_tokens

    def __str__(self) -> str:
        return (
            f"step = {self.base_s * 1e3:g} ms + {self.per_conversation_s * 1e3:g} ms a conversation"
            f" + {self.per_prompt_token_s * 1e3:g} ms a prompt token;"
            f" no further prompt once it has {self.max_prompt_tokens:,} tokens of them"
        )

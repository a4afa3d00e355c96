"""Models as files: the native format, and weights of a stock T5 encoder.

`save` and `load` use one safetensors file with the layout, the spec and the read-out beside the
weights. The weights are restored bit for bit, without PyTorch.

`to_t5` writes a construction of softmax heads and ReLU tables as a T5 encoder that Hugging Face's
unmodified `T5EncoderModel` loads. Every tool that reads Hugging Face models can then be tested on
a transformer whose algorithm is known. The docstring of `to_t5` has a complete session.

- RMSNorm leaves the stream unchanged bit for bit: one more channel holds 2^40, and d_model is a
  power of 4.
- The mask is stored in a channel, so the model needs no attention mask.
- Every slot of the layout can be read from every layer (`T5.slot`).

Other stock encoders are not supported. LLaMA would work: its inputs can turn off the causal mask
and the rotary positions, and SwiGLU multiplies exactly. BERT and ViT subtract a mean in LayerNorm,
so every channel would need a mirrored one, and the identity would be approximate. GPT-2 is causal,
while alpha at a support depends on the supports after it.
"""

from .native import load, save
from .t5 import T5, open_t5, to_t5

__all__ = ["T5", "load", "open_t5", "save", "to_t5"]

"""Models as files and from elsewhere: the native format, T5 encoders and GPT-2.

`save` and `load` use one safetensors file. It contains the weights, the layout, the spec and the
readout. The weights are restored bit for bit, without PyTorch.

`to_t5` writes a construction with softmax heads and ReLU tables as a T5 encoder. The unmodified
`T5EncoderModel` of Hugging Face can load it. Every tool that reads Hugging Face models can then be
tested on a transformer whose algorithm is known. The docstring of `to_t5` has a complete example.

- RMSNorm leaves every bit of the residual stream unchanged, because an additional channel has the
  value 2^40 and d_model is a power of 4.
- The mask is stored in a channel, so the model needs no attention mask.
- Every slot of the layout can be read from every layer (`T5.slot`).

`from_gpt2` goes the other way: it reads a GPT-2 of Hugging Face or of nanoGPT, with the read-in and
readout of Garg et al. (2022), so that caches, hooks and probes work on a model that was trained
elsewhere.

`from_linear_attention` reads the inputs of a recurrent layer (DeltaNet, KDA, Mesa and others) as a
task, so that a construction can be compared with the layer, token by token.

Constructions have no other standard architecture. LLaMA would be possible: its inputs can turn off
the causal mask and the rotary positions, and SwiGLU multiplies exactly. In BERT and ViT, LayerNorm
subtracts the mean. Every channel would therefore need a second channel with the opposite sign, and
LayerNorm would be the identity only approximately. GPT-2 is causal, but alpha at a support depends
on later supports.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

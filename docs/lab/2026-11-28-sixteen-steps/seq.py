"""Models of transformers that are no causal language models, from configurations written out in full."""

import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM, T5Config, T5ForConditionalGeneration


def modernbert(vocab_size=50368, num_layers=28, d_model=1024, d_ff=2624, num_heads=16):
    """ModernBERT-large: GeGLU, every third layer global, the others with a window of 128."""
    return ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=vocab_size,
            hidden_size=d_model,
            intermediate_size=d_ff,
            num_hidden_layers=num_layers,
            num_attention_heads=num_heads,
            hidden_activation="gelu",
            max_position_embeddings=8192,
            global_attn_every_n_layers=3,
            local_attention=128,
            norm_bias=False,
            attention_bias=False,
            mlp_bias=False,
            decoder_bias=True,
            embedding_dropout=0.0,
            mlp_dropout=0.0,
            attention_dropout=0.0,
            pad_token_id=50283 if vocab_size > 50283 else 0,
            tie_word_embeddings=True,
        )
    )


class Seq2Seq(torch.nn.Module):
    def __init__(self, t5):
        super().__init__()
        self.t5 = t5

    def forward(self, tokens):
        return self.t5(input_ids=tokens, decoder_input_ids=tokens, use_cache=False).logits


def t5(vocab_size=32128, num_layers=24, d_model=1024, d_ff=2816, num_heads=16):
    """T5 v1.1 large: encoder and decoder, relative position bias, gated GELU, dropout 0.1."""
    return Seq2Seq(
        T5ForConditionalGeneration(
            T5Config(
                vocab_size=vocab_size,
                d_model=d_model,
                d_kv=64,
                d_ff=d_ff,
                num_layers=num_layers,
                num_decoder_layers=num_layers,
                num_heads=num_heads,
                relative_attention_num_buckets=32,
                relative_attention_max_distance=128,
                dropout_rate=0.1,
                feed_forward_proj="gated-gelu",
                tie_word_embeddings=False,
                decoder_start_token_id=0,
            )
        )
    )

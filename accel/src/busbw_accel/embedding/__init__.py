"""Embedding tables that grow: rows by 64-bit id, each made when its id first comes, with the
optimizer inside.
"""

from busbw_accel.embedding.module import DynamicEmbedding, prefixed
from busbw_accel.embedding.settings import TableSettings
from busbw_accel.embedding.table import EmbeddingTable

__all__ = ["DynamicEmbedding", "EmbeddingTable", "TableSettings", "prefixed"]

"""The compiled index: all of its state is arrays (`state`), all of its work is in kernels over them.

From below: `compile` (how a kernel is made), `numbers` (exact order of numbers), `state` (the arrays), `handle` (how kernels
see them), `texts` (the dictionary), `columns` (attributes and their buckets), `exact` (one filter against one publication),
`planes`, `blocks` and `rows` (large and small groups of filters), `partitions` (which groups to look at), `insert`,
`remove` and `match`.
"""

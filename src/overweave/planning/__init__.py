"""Planning: as few brokers as measured traffic needs (THESIS ch 6). Pure: a problem goes in, a plan comes out.

`profiles.assemble` makes a `Problem` of tables, `make.make_plan` solves it by one of `algorithms.ALGORITHMS`,
`plan.validate_plan` checks any plan.
"""

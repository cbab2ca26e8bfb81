"""A controller class becomes machine code: checks, code generation, one cache."""

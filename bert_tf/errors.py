"""The one exception that stands for a mistake of the user's."""


class UserError(ValueError):
    """Something the user can put right: a flag, a file, a checkpoint that does not fit.

    Its message says what is wrong, where, and what to do. The scripts print it on one line
    and exit with code 1, without a traceback; a program that calls the library catches it as
    the `ValueError` that it is.
    """

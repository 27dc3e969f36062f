"""An HTTP server for trained models, for `serve_model.py`."""

"""Anthropic's Messages API."""

from localspec.server.anthropic.events import error_shape
from localspec.server.anthropic.messages import router
from localspec.server.errors import register_shape

__all__ = ["router"]

register_shape("/v1/messages", error_shape)

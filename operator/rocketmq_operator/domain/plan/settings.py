"""What the operator itself decides for all resources; made by `main` from its environment."""

import msgspec

from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.objects import Images


class PlanSettings(msgspec.Struct, frozen=True):
    """Of one operator."""

    images: Images = Images()
    access: Access = Access()

"""A real Prometheus scrapes a real run: every panel has data, and every alert has a value to evaluate."""

import math
import re
from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import until
from tests.system.monitoring.prometheus import Prometheus
from tests.system.monitoring.queries import Query, of_dashboard
from tests.system.monitoring.scene import played

pytestmark = pytest.mark.slow

#: At one a second. The loop's lag is measured every five seconds, and a rate needs two of them within its interval.
_N_SCRAPES = 12
#: Count what only a defect or a broken wire causes, and what needs --rebalance.
_NEVER = re.compile("cache_divergences|rebalancing_evictions")


@pytest.fixture(scope="module")
async def scraped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    """Run a scheduler, an enforcer and a webhook, with every kind of trouble, and go on."""
    async with played(tmp_path_factory.mktemp("scraped")) as prometheus:
        await until(
            lambda: prometheus.numbers('count_over_time(up{job="affinity-scheduler"}[1m])'),
            lambda found: found and found[0] >= _N_SCRAPES,
            timeout_s=5 * _N_SCRAPES,
            what="so many scrapes",
        )
        yield prometheus


@pytest.mark.parametrize(
    "query",
    [query for query in of_dashboard() if not _NEVER.search(query.expression)],
    ids=lambda query: query.where,
)
async def test_a_panel_has_data(scraped: Prometheus, query: Query):
    await until(lambda: scraped.numbers(query.expression), what="data")


@pytest.mark.parametrize("query", of_dashboard(), ids=lambda query: query.where)
async def test_a_panel_has_no_nan_before_anything_happened(scraped: Prometheus, query: Query):
    for at_s in (await scraped.began_s() + 3, None):
        assert not any(map(math.isnan, await scraped.all_numbers(query.expression, at_s))), at_s


async def test_no_sample_is_missing_or_repeated(scraped: Prometheus):
    """Prometheus drops a sample whose series is in a scrape twice."""
    # Some in a row: on a busy machine one may take longer than its second.
    await until(lambda: scraped.numbers("min_over_time(up[4s])"), [1.0, 1.0, 1.0].__eq__, what="good scrapes")
    scraped_, kept = "scrape_samples_scraped", "scrape_samples_post_metric_relabeling"
    assert await scraped.numbers(f"{scraped_} - {kept}") == [0.0] * 3

"""NEXMark's answers over a log of events, as queries for DuckDB."""

from __future__ import annotations

_RANGES = {"": "true", "_rank1": "price < 10000", "_rank2": "price between 10000 and 999999",
           "_rank3": "price >= 1000000"}  # fmt: skip
_COUNTS = ", ".join(f"count(*) filter ({given}) as bids{name}" for name, given in _RANGES.items())
_DISTINCT = ", ".join(
    f"count(distinct {column}) filter ({given}) as {column}s{name}"
    for column in ("bidder", "auction")
    for name, given in _RANGES.items()
)
_VALID = """(select a.* exclude (n), b.auction, b.bidder, b.price, b.channel, b.url,
        b.date_time as bid_at, b.extra
    from auctions a join bids b on b.auction = a.id and b.date_time between a.date_time and a.expires)"""
_TEN_S = "interval '10 seconds'"
_BEST = f"(select id, category, max(price) as price from {_VALID} group by id, category)"
_WINNING = f"""(select id, item, seller, category, expires, auction, bidder, price, bid_at, extra from {_VALID}
    qualify row_number() over (partition by id order by price desc, bid_at, bidder desc) = 1)"""
_LATENESS = "interval '4 seconds'"  # of query 11's watermark

ANSWERS = {
    "q0": "select auction, bidder, price, date_time, extra from bids",
    "q1": "select auction, bidder, price * 0.908::double as price, date_time from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """select p.name, p.city, p.state, a.id as auction from auctions a join persons p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')""",
    "q4": f"select category, avg(price) as price from {_BEST} group by category",
    "q5": """with counts as (
            select auction, w as window_start, count(*) as bids from (
                select auction, unnest(generate_series(last - interval '8 seconds', last, interval '2 seconds')) as w
                from (select auction, time_bucket(interval '2 seconds', date_time) as last from bids))
            group by auction, w)
        select auction, window_start, bids from counts
        where bids = (select max(bids) from counts c where c.window_start = counts.window_start)""",
    "q6": f"""select seller, avg(price) as price from (select * from {_WINNING}
            qualify row_number() over (partition by seller order by expires desc, id desc) <= 10) group by seller""",
    "q7": f"""select auction, bidder, price, date_time, w as window_start from (
            select *, time_bucket({_TEN_S}, date_time) as w from bids) b
        where price = (select max(price) from bids c where time_bucket({_TEN_S}, c.date_time) = b.w)""",
    "q8": f"""select distinct p.id, p.name, time_bucket({_TEN_S}, p.date_time) as window_start
        from persons p join auctions a on p.id = a.seller
            and time_bucket({_TEN_S}, p.date_time) = time_bucket({_TEN_S}, a.date_time)""",
    "q9": f"select * from {_WINNING}",
    "q10": """select auction, bidder, price, date_time, extra, date_time::date as day,
            strftime(date_time, '%H:%M') as minute from bids""",
    "q11": f"""with marked as (
            select bidder, date_time, lag(date_time) over (partition by bidder order by date_time) as before from bids),
        numbered as (
            select bidder, date_time, sum((before is null or date_time > before + {_TEN_S})::int)
                over (partition by bidder order by date_time) as n from marked)
        select bidder, count(*) as bids, min(date_time) as began, max(date_time) + {_TEN_S} as ended from numbered
        group by bidder, n having max(date_time) + {_TEN_S} <= (select max(date_time) from bids) - {_LATENESS}""",
    "q12": f"""select bidder, time_bucket({_TEN_S}, log_at) as window_start, count(*) as bids from bids
        group by bidder, window_start""",
    "q13": """select b.auction, b.bidder, b.price, b.date_time, s.value from bids b
        join side_input s on b.auction % 100 = s.key""",
    "q14": """select auction, bidder, price * 0.908::double as price,
            case when hour(date_time) between 8 and 18 then 'dayTime'
                when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end as kind,
            date_time, extra, length(regexp_replace(extra, '[^c]', '', 'g')) as c_counts
        from bids where price * 0.908::double > 1000000 and price * 0.908::double < 50000000""",
    "q15": f"select date_time::date as day, {_COUNTS}, {_DISTINCT} from bids group by day",
    "q16": f"""select channel, date_time::date as day, max(strftime(date_time, '%H:%M')) as minute, {_COUNTS},
            {_DISTINCT} from bids group by channel, day""",
    "q17": f"""select auction, date_time::date as day, {_COUNTS}, min(price) as min_price, max(price) as max_price,
            avg(price) as avg_price, sum(price)::bigint as sum_price from bids group by auction, day""",
    "q18": """select auction, bidder, price, channel, url, date_time, extra from bids
        qualify row_number() over (partition by bidder, auction order by date_time desc, n desc) = 1""",
    "q19": """select auction, bidder, price, channel, url, date_time, extra, place from (select *,
            row_number() over (partition by auction order by price desc, date_time, bidder) as place from bids)
        where place <= 10""",
    "q20": f"select * exclude (description) from {_VALID} where category = 10",
    "q21": """select auction, bidder, price, channel, case lower(channel) when 'apple' then '0' when 'google' then '1'
            when 'facebook' then '2' when 'baidu' then '3'
            else nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') end as channel_id
        from bids where channel_id is not null""",
    "q22": """select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
            split_part(url, '/', 6) as dir3 from bids""",
}  # fmt: skip
EVENTS = {
    "persons": "id bigint, name varchar, city varchar, state varchar, date_time timestamp",
    "auctions": "id bigint, item varchar, description varchar, initial_bid bigint, reserve bigint, "
    "date_time timestamp, expires timestamp, seller bigint, category bigint",
    "bids": "auction bigint, bidder bigint, price bigint, channel varchar, url varchar, date_time timestamp, "
    "extra varchar, log_at timestamp",
    "side_input": "key bigint, value varchar",
}

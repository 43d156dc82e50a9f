%% @private
%% @doc What a listener counts, in one table from which `weir_http:info/1' and documents are made.
-module(weir_http_counters).

-export([new/0]).
-export([add/2]).
-export([get/1]).
-export([table/0]).

-export_type([counters/0, name/0]).

-opaque counters() :: counters:counters_ref().

-type name() :: requests | refused | timeouts | crashes.

%% @doc Counters that are zero.
-spec new() -> counters().
new() -> counters:new(length(table()), [write_concurrency]).

%% @doc Counts one more.
-spec add(counters(), name()) -> ok.
add(Counters, Name) -> counters:add(Counters, index(Name), 1).

%% @doc All counters by their names.
-spec get(counters()) -> #{name() => non_neg_integer()}.
get(Counters) ->
    maps:from_list([{Name, counters:get(Counters, index(Name))} || {Name, _Kind, _Help} <- table()]).

index(requests) -> 1;
index(refused) -> 2;
index(timeouts) -> 3;
index(crashes) -> 4.

%% @doc The names, what they are, and what they count.
-spec table() -> [{name(), counter, Help :: string()}].
table() ->
    [
        {requests, counter, "Requests whose head was complete and right"},
        {refused, counter, "Requests that were refused with a 4xx or 5xx and a close, before a handler saw them"},
        {timeouts, counter, "Connections that were closed because a request took too long to come"},
        {crashes, counter, "Requests whose handler raised, or returned what it may not"}
    ].

%% @doc Samples Weir once a second, where it runs: its pollsets, with the columns of Wei Cao's epollwait.stp, its
%% listeners and its reactors.
-module(weir_scope_engine).

-export([is_reactors/1]).
-export([read/2]).
-export([between/3]).

-export_type([reading/0, engine/0, pollset/0, listener/0, reactor/0, server/0]).

-opaque reading() :: #{
    pollsets := #{pos_integer() => map()},
    listeners := #{term() => map()},
    reactors := #{{pos_integer(), pid()} => map()},
    counts := #{relays | groups => non_neg_integer()},
    contention := #{atom() => non_neg_integer()},
    servers => #{{Proxy :: term(), Backend :: binary(), Server :: binary()} => map()},
    products := weir_scope_products:reading()
}.

-type engine() :: #{
    pollsets := [pollset()],
    listeners := [listener()],
    reactors => [reactor()],
    counts => #{relays | groups => non_neg_integer()},
    locks => [#{table := atom(), total := non_neg_integer(), rate := float()}],
    servers => [server()],
    products => [weir_scope_products:counter()]
}.
%% `counts': numbers of relays and groups. `locks': lock waits on entries of Weir's tables. An older Weir has no
%% `counts' and no `reactors'.

-type pollset() :: #{
    pollset := pos_integer(),
    scheduler := pos_integer() | anywhere | undefined,
    sockets := non_neg_integer(),
    times := float(),
    revents := float(),
    min := non_neg_integer(),
    max := non_neg_integer(),
    avg := float(),
    timeouts := float(),
    sleeps := float(),
    asleep := float(),
    polling => float(),
    age_us => float(),
    woken_by_thread => float(),
    woken_by_process => float(),
    reads := float(),
    bytes_in := float(),
    writes := float(),
    bytes_out := float(),
    accepts := float(),
    contended => float(),
    asked_away => float(),
    moved_in => float(),
    totals := #{atom() => non_neg_integer()}
}.
%% Rates are per second. `times': polls. `revents': ready sockets that they found. `timeouts': polls that found none.
%% Each poll is one system call; each of the `sleeps' is preceded by one more. `min' and `max': ready sockets of the
%% smallest and the largest poll, rounded to powers of two (`min' down, `max' up). `avg': `revents' divided by `times'.
%% `asleep' and `polling': fractions of the time. `age_us': mean over the polls that found an event of the longest
%% time, in microseconds, that an event may have waited. `woken_by_thread' and `woken_by_process': wake-ups of the
%% poller by an event of the kernel and by a process. `contended': lock waits on the ready list. `asked_away': requests
%% on this scheduler for data of sockets that another one polls. `moved_in': sockets moved here from another pollset.
%% An older Weir does not have the last seven. `totals': counts since the pollset was made. Pollsets with numbers from
%% 1,025 belong to reactors.

-type listener() :: #{name := term(), atom() => term()}.
%% `name', `port', `status', `connections', `max_connections', `waiting', `backlog', `max_backlog', and rates per
%% second: `accepted', `overload', `denied', `crowded', `full_pauses', `rate_pauses', `failed_handshakes'. `totals' has
%% the last seven since the listener started, and the number (`replies') and the total time (`reply_ns') of measured
%% replies. A listener with the option `measure' has `latency', the figures of the last second's replies ({@link
%% weir_scope_latency:figures()}), and `times', their histogram: `[[Nanoseconds, Count]]'.

-type reactor() :: #{
    pollset := pos_integer(),
    module := module(),
    scheduler := pos_integer(),
    callbacks := float(),
    busy := float(),
    mean_us := float(),
    totals := #{callbacks := non_neg_integer(), callback_ns := non_neg_integer()},
    latency => weir_scope_latency:figures()
}.
%% `callbacks': callbacks per second for events of sockets, messages and ticks. `busy': fraction of the time spent in
%% them. `mean_us': their mean time in microseconds. `latency': times of the measured calls of handle_data/3, if the
%% reactor measures them. See {@link //weir/weir:reactors/0}.

-type server() :: #{
    proxy := term(),
    backend := binary(),
    server := binary(),
    latency := weir_scope_latency:figures(),
    totals := #{replies := non_neg_integer(), reply_ns := non_neg_integer()}
}.
%% A server behind a proxy whose backend has the option `measure'. `latency': figures of the last second's replies.

%% The first number of a reactor's pollset.
-define(FIRST_OF_REACTORS, 1025).

%% Milliseconds to wait for listeners. They are called in a separate process, so that one that hangs does not delay
%% samples.
-define(PATIENCE, 200).

-define(MOST_LISTENERS, 200).

-define(MOST_REACTORS, 200).

-define(MOST_SERVERS, 200).

-define(COUNTED, [accepted, overload, denied, crowded, full_pauses, rate_pauses, failed_handshakes]).

%% @doc Reads the counters of Weir. Returns `none' if Weir does not run or has not started its pollsets. Listeners that
%% do not answer in time keep the counts of the previous reading, so their counts come late but are not lost.
-spec read(weir_scope_facts:ask(), Before :: reading() | none) -> reading() | none.
read(Ask, Before) ->
    case Ask(erlang, whereis, [weir_pollsets]) of
        undefined -> none;
        _ ->
            Listeners = listeners(Ask, Before),
            #{
                pollsets => maps:from_list(pollsets(Ask)),
                listeners => maps:from_list(Listeners),
                reactors => reactors(Ask),
                counts => counts(Ask),
                contention => contention(Ask),
                servers => servers(Ask),
                products => weir_scope_products:read(Ask, Listeners)
            }
    end.

pollsets(Ask) ->
    try
        [{Number, Pollset} || #{pollset := Number} = Pollset <- Ask(weir, pollsets, [])] ++
            of_reactors(Ask, ?FIRST_OF_REACTORS)
    catch
        %% Weir is being stopped.
        _:_ -> []
    end.

counts(Ask) ->
    try
        #{relays => Ask(weir_nif, relay_count, []), groups => Ask(weir_nif, group_count, [])}
    catch
        _:_ -> #{}
    end.

contention(Ask) ->
    try
        Ask(weir_nif, contention, [])
    catch
        _:_ -> #{}
    end.

reactors(Ask) ->
    try Ask(weir, reactors, []) of
        All ->
            maps:from_list([
                {{Number, Pid}, Reactor}
             || #{pollset := Number, reactor := Pid} = Reactor <- lists:sublist(All, ?MOST_REACTORS)
            ])
    catch
        _:_ -> #{}
    end.

%% Servers behind proxies. `weir_proxy:latency/1' calls no process.
servers(Ask) ->
    try
        Proxies =
            case Ask(erlang, whereis, [weir_proxy_sup]) of
                undefined -> [];
                _ -> Ask(weir_proxy, proxies, [])
            end,
        All = [
            {{Proxy, Backend, Server}, Latency}
         || Proxy <- Proxies,
            {Backend, Servers} <- maps:to_list(Ask(weir_proxy, latency, [Proxy])),
            {Server, Latency} <- maps:to_list(Servers)
        ],
        maps:from_list(lists:sublist(All, ?MOST_SERVERS))
    catch
        %% The proxy is being stopped, or is an older version.
        _:_ -> #{}
    end.

of_reactors(Ask, Number) ->
    try Ask(weir_nif, counters, [Number]) of
        %% A pollset without a reactor: its reactor has ended.
        #{polls := 0} -> of_reactors(Ask, Number + 1);
        Counters -> [{Number, Counters#{scheduler => undefined}} | of_reactors(Ask, Number + 1)]
    catch
        _:_ -> []
    end.

listeners(Ask, Before) ->
    try
        Node = Ask(erlang, node, []),
        Names = Ask(erpc, call, [Node, weir, listeners, [], ?PATIENCE]),
        Call = fun(Module, Function, Name) -> Ask(erpc, call, [Node, Module, Function, [Name], ?PATIENCE]) end,
        Http = Ask(erlang, whereis, [weir_http_sup]) =/= undefined,
        [
            {Name, with_times(Info, Name, Call)}
         || Name <- lists:sublist(Names, ?MOST_LISTENERS), #{} = Info <- [info(Http, Name, Call)]
        ]
    catch
        error:{erpc, timeout} -> known(Before);
        _:_ -> []
    end.

known(#{listeners := Listeners}) -> maps:to_list(Listeners);
known(none) -> [].

%% weir_http:info/1 has more counters for a listener of HTTP.
info(true, Name, Call) ->
    try
        Call(weir_http, info, Name)
    catch
        error:{exception, {no_listener, Name}, _} -> Call(weir, info, Name)
    end;
info(false, Name, Call) ->
    Call(weir, info, Name).

with_times(#{measured := true} = Info, Name, Call) ->
    case Call(weir, latency, Name) of
        #{times := Times} -> Info#{times => Times};
        {error, _} -> Info
    end;
with_times(Info, _Name, _Call) ->
    Info.

%% @doc Returns what has happened between two readings that are `Ns' nanoseconds apart.
-spec between(reading() | none, reading() | none, pos_integer()) -> engine() | none.
between(
    #{
        pollsets := Before,
        listeners := Listeners,
        reactors := Reactors,
        contention := Contention,
        products := Products
    } = Earlier,
    #{
        pollsets := After,
        listeners := LaterListeners,
        reactors := LaterReactors,
        counts := Counts,
        contention := LaterContention,
        products := LaterProducts
    } = Later,
    Ns
) ->
    Servers = maps:get(servers, Earlier, #{}),
    #{
        counts => Counts,
        locks => [
            #{table => Table, total => Total, rate => since(Waits, Total) * 1_000_000_000 / Ns}
         || {Table, Total} <- lists:sort(maps:to_list(LaterContention)), #{Table := Waits} <- [Contention]
        ],
        servers => [
            server(Key, map_get(Key, Servers), Now)
         || {Key, Now} <- lists:sort(maps:to_list(maps:get(servers, Later, #{}))), is_map_key(Key, Servers)
        ],
        reactors => [
            reactor(maps:get(Key, Reactors), Now, Ns)
         || {Key, Now} <- lists:sort(maps:to_list(LaterReactors)), is_map_key(Key, Reactors)
        ],
        products => weir_scope_products:between(Products, LaterProducts, Ns),
        pollsets => [
            pollset(Number, maps:get(Number, Before), Now, Ns)
         || {Number, Now} <- lists:sort(maps:to_list(After)), is_map_key(Number, Before)
        ],
        listeners => [
            listener(Name, maps:get(Name, Listeners), Now, Ns)
         || {Name, Now} <- lists:sort(maps:to_list(LaterListeners)), is_map_key(Name, Listeners)
        ]
    };
between(_, _, _Ns) ->
    none.

pollset(Number, Before, #{sockets := Sockets} = Now, Ns) ->
    Since = fun(Key) -> since(maps:get(Key, Before), maps:get(Key, Now)) end,
    Rate = fun(Key) -> Since(Key) * 1_000_000_000 / Ns end,
    Sizes = lists:zipwith(fun since/2, maps:get(events_log2, Before), maps:get(events_log2, Now)),
    {Least, Most} = extremes(Since(empty_polls), Sizes),
    Own = #{
        pollset => Number,
        scheduler => maps:get(scheduler, Now),
        sockets => Sockets,
        times => Rate(polls),
        revents => Rate(events),
        min => Least,
        max => Most,
        avg => Since(events) / max(1, Since(polls)),
        timeouts => Rate(empty_polls),
        sleeps => Rate(sleeps),
        asleep => asleep(Since(polls), Since(asleep_ns) / Ns),
        reads => Rate(reads),
        bytes_in => Rate(read_bytes),
        writes => Rate(writes),
        bytes_out => Rate(written_bytes),
        accepts => Rate(accepts),
        totals => maps:with(
            [
                polls,
                empty_polls,
                events,
                sleeps,
                reads,
                read_bytes,
                writes,
                written_bytes,
                accepts,
                wakes_by_thread,
                wakes_by_process,
                contended,
                asked_away,
                moved_in
            ],
            Now
        )
    },
    Measured =
        case Now of
            #{asked_away := _} -> Own#{asked_away => Rate(asked_away), moved_in => Rate(moved_in)};
            _ -> Own
        end,
    case Now of
        #{contended := _} ->
            Measured#{
                polling => min(1.0, Since(polling_ns) / Ns),
                age_us => Since(between_ns) / 1000 / max(1, Since(polls) - Since(empty_polls)),
                woken_by_thread => Rate(wakes_by_thread),
                woken_by_process => Rate(wakes_by_process),
                contended => Rate(contended)
            };
        _ ->
            Measured
    end.

%% @doc Returns whether a pollset belongs to a reactor. If not, it belongs to a scheduler.
-spec is_reactors(pos_integer()) -> boolean().
is_reactors(Number) -> Number >= ?FIRST_OF_REACTORS.

%% A restarted listener or reactor counts from zero.
since(Before, Now) when Now >= Before -> Now - Before;
since(_Before, Now) -> Now.

%% Number i, from 0, counts the polls that found 2^i to 2^(i+1)-1 sockets.
extremes(Empty, Sizes) ->
    case [Index || {Index, Polls} <- lists:zip(lists:seq(0, length(Sizes) - 1), Sizes), Polls > 0] of
        [] -> {0, 0};
        Found when Empty > 0 -> {0, (2 bsl lists:last(Found)) - 1};
        Found -> {1 bsl hd(Found), (2 bsl lists:last(Found)) - 1}
    end.

%% A sleep is counted when it ends. Without a poll the poller slept all the time.
asleep(0, _Part) -> 1.0;
asleep(_Polls, Part) -> min(1.0, Part).

listener(Name, Before, Now, Ns) ->
    Gauges = maps:with([port, status, connections, waiting, backlog, max_backlog, max_connections], Now),
    Rates = [
        {Key, since(maps:get(Key, Before), maps:get(Key, Now)) * 1_000_000_000 / Ns}
     || Key <- ?COUNTED, is_map_key(Key, Now), is_map_key(Key, Before)
    ],
    Totals = maps:with([replies, reply_ns | ?COUNTED], Now),
    maps:merge(Gauges#{name => Name, totals => Totals}, maps:merge(maps:from_list(Rates), latency(Before, Now))).

server({Proxy, Backend, Server}, #{times := Before}, #{times := Now, replies := Replies, reply_ns := Time}) ->
    Latency = weir_scope_latency:figures(weir_scope_latency:between(Before, Now)),
    #{
        proxy => Proxy,
        backend => Backend,
        server => Server,
        latency => Latency,
        totals => #{replies => Replies, reply_ns => Time}
    }.

latency(#{times := Before}, #{times := Now}) ->
    Times = weir_scope_latency:between(Before, Now),
    #{latency => weir_scope_latency:figures(Times), times => [[Time, Count] || {Time, Count} <- Times]};
latency(_Before, _Now) ->
    #{}.

%% Counters of the same pollset and process never decrease.
reactor(
    #{callbacks := Callbacks, callback_ns := Time} = Before,
    #{callbacks := NowCallbacks, callback_ns := NowTime} = Now,
    Ns
) ->
    Own = #{
        callbacks => (NowCallbacks - Callbacks) * 1_000_000_000 / Ns,
        busy => min(1.0, (NowTime - Time) / Ns),
        mean_us => (NowTime - Time) / 1000 / max(1, NowCallbacks - Callbacks),
        totals => #{callbacks => NowCallbacks, callback_ns => NowTime}
    },
    maps:merge(maps:merge(maps:with([pollset, module, scheduler], Now), Own), measured(Before, Now)).

measured(#{times := Before}, #{measured := true, times := Now}) ->
    #{latency => weir_scope_latency:figures(weir_scope_latency:between(Before, Now))};
measured(_Before, _Now) ->
    #{}.

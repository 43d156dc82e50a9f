%% @doc Weir by the second, where it runs: its pollsets with the columns of Wei Cao's epollwait.stp, and its listeners.
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
%% `counts': how many relays and groups there are; an older Weir does not say, nor has it `reactors'. `locks': of its tables, how often
%% somebody had to wait for the lock of an entry.

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
%% A second: `times' polls were made, they found `revents' ready sockets, `timeouts' of them found none. The kernel is asked once for each
%% poll, and once more before each of the `sleeps'. `min' and `max' are those of a poll, to the next power of two: `min' is at most, `max'
%% at least as many as there were. `avg' is `revents' by `times'. `asleep' and `polling' are parts of the time. `age_us': how many
%% microseconds an event waited at most, in the mean of the polls that found one. `woken_by_thread' and `woken_by_process': how often the poller
%% was woken by an event of the kernel, and by a process. `contended': how often somebody had to wait for the lock of its list.
%% `asked_away': data that processes on this scheduler asked for, of sockets that another one polls. `moved_in': sockets that came from another
%% pollset. An older Weir has not the last seven. `totals' are since the pollset was
%% made. Those from 1,025 on belong to reactors.

-type listener() :: #{name := term(), atom() => term()}.
%% `name', `port', `status', `connections', `max_connections', `waiting', `backlog', `max_backlog', and a second: `accepted', `overload',
%% `denied', `crowded', `full_pauses', `rate_pauses', `failed_handshakes'. `totals' has the last seven since the listener began, and of the replies that were measured their number and the
%% sum of their times. A listener with the option `measure' has `latency', the figures of the replies of the second ({@link
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
%% A second: `callbacks' for so many events of its sockets, messages and ticks, which took the part `busy' of the time, and `mean_us' microseconds each.
%% `latency': how long single calls of handle_data/3 took, where it measures that, of those that were measured. See {@link
%% //weir/weir:reactors/0}.

-type server() :: #{
    proxy := term(),
    backend := binary(),
    server := binary(),
    latency := weir_scope_latency:figures(),
    totals := #{replies := non_neg_integer(), reply_ns := non_neg_integer()}
}.
%% A server behind a proxy, of a backend with the option `measure': `latency' are the figures of its replies of the second.

%% Reactors' pollsets have numbers from this one on.
-define(FIRST_OF_REACTORS, 1025).

%% Listeners are asked in a process of its own, for so long: one that hangs delays no sample.
-define(PATIENCE, 200).

-define(MOST_LISTENERS, 200).

-define(MOST_REACTORS, 200).

-define(MOST_SERVERS, 200).

%% What a listener counts.
-define(COUNTED, [accepted, overload, denied, crowded, full_pauses, rate_pauses, failed_handshakes]).

%% @doc `none' where Weir does not run, or has not started its pollsets. Of listeners that do not answer in time it has what the reading before
%% has: so what they count is late, and not lost.
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
        [{Number, Pollset} || #{pollset := Number} = Pollset <- Ask(weir, pollsets, [])] ++ of_reactors(Ask, ?FIRST_OF_REACTORS)
    catch
        %% It is being stopped.
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
        All -> maps:from_list([{{Number, Pid}, Reactor} || #{pollset := Number, reactor := Pid} = Reactor <- lists:sublist(All, ?MOST_REACTORS)])
    catch
        _:_ -> #{}
    end.

%% Those of proxies, which know that without asking a process.
servers(Ask) ->
    try
        Proxies = case Ask(erlang, whereis, [weir_proxy_sup]) of undefined -> []; _ -> Ask(weir_proxy, proxies, []) end,
        All = [
            {{Proxy, Backend, Server}, Latency}
         || Proxy <- Proxies, {Backend, Servers} <- maps:to_list(Ask(weir_proxy, latency, [Proxy])), {Server, Latency} <- maps:to_list(Servers)
        ],
        maps:from_list(lists:sublist(All, ?MOST_SERVERS))
    catch
        %% It is being stopped, or is an older one.
        _:_ -> #{}
    end.

of_reactors(Ask, Number) ->
    try Ask(weir_nif, counters, [Number]) of
        %% Nobody's: the reactor that took it has ended.
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
        [{Name, with_times(Info, Name, Call)} || Name <- lists:sublist(Names, ?MOST_LISTENERS), #{} = Info <- [info(Http, Name, Call)]]
    catch
        error:{erpc, timeout} -> known(Before);
        _:_ -> []
    end.

known(#{listeners := Listeners}) -> maps:to_list(Listeners);
known(none) -> [].

%% One of HTTP tells more.
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

%% @doc What has happened between two readings that are so many nanoseconds apart.
-spec between(reading() | none, reading() | none, pos_integer()) -> engine() | none.
between(
    #{pollsets := Before, listeners := Listeners, reactors := Reactors, contention := Contention, products := Products} = Earlier,
    #{pollsets := After, listeners := LaterListeners, reactors := LaterReactors, counts := Counts, contention := LaterContention, products := LaterProducts} = Later,
    Ns
) ->
    Servers = maps:get(servers, Earlier, #{}),
    #{
        counts => Counts,
        locks => [
            #{table => Table, total => Total, rate => since(Waits, Total) * 1_000_000_000 / Ns}
         || {Table, Total} <- lists:sort(maps:to_list(LaterContention)), #{Table := Waits} <- [Contention]
        ],
        servers => [server(Key, map_get(Key, Servers), Now) || {Key, Now} <- lists:sort(maps:to_list(maps:get(servers, Later, #{}))), is_map_key(Key, Servers)],
        reactors => [reactor(maps:get(Key, Reactors), Now, Ns) || {Key, Now} <- lists:sort(maps:to_list(LaterReactors)), is_map_key(Key, Reactors)],
        products => weir_scope_products:between(Products, LaterProducts, Ns),
        pollsets => [pollset(Number, maps:get(Number, Before), Now, Ns) || {Number, Now} <- lists:sort(maps:to_list(After)), is_map_key(Number, Before)],
        listeners => [listener(Name, maps:get(Name, Listeners), Now, Ns) || {Name, Now} <- lists:sort(maps:to_list(LaterListeners)), is_map_key(Name, Listeners)]
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
            [polls, empty_polls, events, sleeps, reads, read_bytes, writes, written_bytes, accepts, wakes_by_thread, wakes_by_process, contended, asked_away, moved_in], Now
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

%% @doc Whether a pollset is that of a reactor, and not of a scheduler.
-spec is_reactors(pos_integer()) -> boolean().
is_reactors(Number) -> Number >= ?FIRST_OF_REACTORS.

%% A listener or a reactor that was started anew counts from zero.
since(Before, Now) when Now >= Before -> Now - Before;
since(_Before, Now) -> Now.

%% The i-th number, from 0, is of polls that found 2^i to 2^(i+1)-1 sockets.
extremes(Empty, Sizes) ->
    case [Index || {Index, Polls} <- lists:zip(lists:seq(0, length(Sizes) - 1), Sizes), Polls > 0] of
        [] -> {0, 0};
        Found when Empty > 0 -> {0, (2 bsl lists:last(Found)) - 1};
        Found -> {1 bsl hd(Found), (2 bsl lists:last(Found)) - 1}
    end.

%% A sleep is counted when it ends.
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
    #{proxy => Proxy, backend => Backend, server => Server, latency => Latency, totals => #{replies => Replies, reply_ns => Time}}.

latency(#{times := Before}, #{times := Now}) ->
    Times = weir_scope_latency:between(Before, Now),
    #{latency => weir_scope_latency:figures(Times), times => [[Time, Count] || {Time, Count} <- Times]};
latency(_Before, _Now) ->
    #{}.

%% A reactor of that pollset and process only counts up.
reactor(#{callbacks := Callbacks, callback_ns := Time} = Before, #{callbacks := NowCallbacks, callback_ns := NowTime} = Now, Ns) ->
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

%% @doc Formats one table for a chapter of the suite: a row for each scenario, columns for stock, Weir, native code
%% and peers, and in each cell a line for each OTP release. Spreads and all other contestants are in the results
%% files.
-module(weir_bench_topic).

-export([table/2]).

%% The end of a title with two schedulers.
-define(TWO, ", 2:2").

%% @doc Returns header and rows. Each scenario has its results by release: `[{Name, [{Release, Scenario}]}]'.
-spec table([{Name :: binary(), ByRelease}], Titles :: #{binary() => unicode:chardata()}) ->
    {[unicode:chardata()], [[unicode:chardata()]]}
when
    ByRelease :: [{Release :: binary(), weir_bench_results:document()}].
table(Scenarios, Titles) ->
    {["work", "OTP", "measure", "stock", "OTP's best", "drop-in", "Weir's own way", "native", "peers"], [
        [["`", Name, "`: ", map_get(Name, Titles)] | columns(Rows)]
     || {Name, ByRelease} <- Scenarios,
        Rows <- [
            [
                [Release | row(measures(Metrics), Contestants)]
             || {Release, #{<<"metrics">> := [First | _] = Metrics} = Scenario} <- ByRelease,
                {_, [_ | _]} = Contestants <- [contestants(First, Scenario)]
            ]
        ],
        Rows =/= []
    ]}.

%% A cell has a line for each release, or one line if all are equal.
columns([[_ | _] | _] = Rows) ->
    Cells = [unicode:characters_to_binary(Cell) || [Cell | _] <- Rows],
    [
        case lists:usort(Cells) of
            [Same] -> Same;
            _ -> lists:join("<br>", [case Cell of <<>> -> "–"; _ -> Cell end || Cell <- Cells])
        end
        | columns([Others || [_ | Others] <- Rows])
    ];
columns(_) ->
    [].

%% The first metric of the scenario and its cost; if the first is the cost, the rate; without a cost, the second
%% metric.
measures([<<"cpu_us_per_request">> = First | Others]) ->
    [First | [Rate || <<"requests_per_s">> = Rate <- Others]];
measures([First | Others]) ->
    case [Cost || Cost <- Others, Cost =:= <<"cpu_us_per_request">> orelse Cost =:= <<"bytes_per_cpu_s">>] of
        [] -> [First | lists:sublist(Others, 1)];
        Costs -> [First | Costs]
    end.

%% A title with a comma is a variant of a contestant. Variants count only if there is nothing else; those with two
%% schedulers are shown beside their contestant.
contestants(First, #{<<"contestants">> := Contestants}) ->
    Measured = [
        {Title, Backend, Summary}
     || #{<<"title">> := Title, <<"backend">> := Backend, <<"metrics">> := #{First := _} = Summary} <- Contestants
    ],
    case [Contestant || {Title, _, _} = Contestant <- Measured, binary:match(Title, <<",">>) =:= nomatch] of
        [] -> {variants, Measured};
        Plain -> {plain, Plain ++ [Two || {Title, _, _} = Two <- Measured, with_two(Title)]}
    end.

with_two(Title) -> lists:suffix(?TWO, binary_to_list(Title)).

row([First | _] = Measures, {Kind, All}) ->
    {Two, Contestants} = lists:partition(fun({Title, _, _}) -> Kind =:= plain andalso with_two(Title) end, All),
    Show = fun({_, _, Summary}) -> lists:join(<<" · "/utf8>>, [value(Measure, Summary) || Measure <- Measures]) end,
    Named = fun({Title, _, _} = Contestant) -> [Title, ": ", Show(Contestant)] end,
    Of = fun(Role) -> [Contestant || Contestant <- Contestants, role(Contestant) =:= Role] end,
    BesideTwo = fun({Title, _, _} = Contestant) ->
        [Show(Contestant) | [["; 2:2 ", Show(Other)] || {Known, _, _} = Other <- Two, Known =:= <<Title/binary, ?TWO>>]]
    end,
    Several = fun(Some) -> lists:join("; ", [Named(Contestant) || Contestant <- Some]) end,
    [
        lists:join(<<" · "/utf8>>, [weir_bench_sample:title(binary_to_existing_atom(Measure)) || Measure <- Measures])
        | case Kind of
            plain ->
                [
                    first(BesideTwo, Of(stock)),
                    best(Named, First, Of(stock) ++ Of(socket)),
                    first(BesideTwo, drop_in(Of(stock), Of(drop_in))),
                    Several(Of(own)),
                    first(Show, Of(native)),
                    Several(Of(peer))
                ];
            variants ->
                [
                    Several(Of(stock)),
                    Several(Of(socket)),
                    Several(Of(drop_in)),
                    Several(Of(own)),
                    Several(Of(native)),
                    Several(Of(peer))
                ]
        end
    ].

value(Measure, Summary) ->
    case Summary of
        #{Measure := #{<<"median">> := Median}} -> weir_bench_sample:format(binary_to_existing_atom(Measure), Median);
        #{} -> <<"–"/utf8>>
    end.

%% Third-party programs are peers on every backend.
role({Title, Backend, _}) when Backend =:= <<"inet">>; Backend =:= <<"socket">>; Backend =:= <<"weir">> ->
    case
        lists:any(fun(Name) -> string:prefix(Title, Name) =/= nomatch end, [
            <<"ranch">>, <<"cowboy">>, <<"ehttpd">>, <<"recon">>, <<"observer_cli">>
        ])
    of
        true -> peer;
        false -> of_erlang(Title, Backend)
    end;
role({_, <<"reference">>, _}) ->
    native;
role(_) ->
    peer.

of_erlang(<<"inet", _/binary>>, <<"inet">>) ->
    stock;
%% In a scenario without sockets: what Weir is compared with on a stock VM.
of_erlang(_Title, <<"inet">>) ->
    peer;
of_erlang(_Title, <<"socket">>) ->
    socket;
of_erlang(Title, <<"weir">>) ->
    Own = [
        <<"weir listener">>,
        <<"weir reactor">>,
        <<"weir relay">>,
        <<"weir group">>,
        <<"weir http">>,
        <<"weir websocket">>,
        <<"weir events">>,
        <<"echo reactor">>,
        <<"weir proxy">>,
        <<"weir push">>,
        <<"weir_scope">>,
        <<"latency measured">>
    ],
    case lists:any(fun(Name) -> string:prefix(Title, Name) =/= nomatch end, Own) of
        true -> own;
        false -> drop_in
    end.

first(_, []) -> "";
first(Show, [Contestant | _]) -> Show(Contestant).

%% The drop-in with the active mode of stock's first contestant.
drop_in([{<<"inet", Way/binary>>, _, _} | _], Contestants) ->
    [Contestant || {<<"weir", Same/binary>>, _, _} = Contestant <- Contestants, Same =:= Way];
drop_in([], Contestants) ->
    Contestants.

best(_, _, []) ->
    "";
best(Named, First, Contestants) ->
    Median = fun({_, _, #{First := #{<<"median">> := Value}}}) -> Value end,
    Sorted = lists:sort(fun(A, B) -> Median(A) =< Median(B) end, Contestants),
    Named(
        case weir_bench_sample:better(binary_to_existing_atom(First)) of
            less -> hd(Sorted);
            more -> lists:last(Sorted)
        end
    ).

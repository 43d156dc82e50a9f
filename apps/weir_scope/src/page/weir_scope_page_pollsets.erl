%% @private
%% @doc The page about pollsets: what each did in the last second, with the columns of Wei Cao's "pollset per
%% scheduler".
-module(weir_scope_page_pollsets).

-export([page/1]).

-import(weir_scope_figure, [percent/1, count/1, part/2, counted/2]).

%% @doc Returns the page for a sample.
-spec page(weir_scope_engine:engine() | none) -> [weir_scope_page:block()].
page(none) ->
    [{text, ["", "Weir does not run on this node."]}];
page(#{pollsets := Pollsets}) ->
    [
        {text, ["" | busiest(Pollsets)]},
        {table,
            [
                {number, "pollset", right},
                {sockets, "sockets", right},
                {times, "times", right},
                {revents, "revents", right},
                {min, "min", right},
                {max, "max", right},
                {avg, "avg", right},
                {timeouts, "timeouts", right},
                {sleeps, "sleeps", right},
                {asleep, "asleep", right},
                {polling, "polling", right},
                {age, "age us", right},
                {thread, "by thread", right},
                {process, "by process", right},
                {contended, "contended", right},
                {away, "away", right},
                {moved, "moved in", right}
            ],
            [
                [
                    {Number, integer_to_list(Number)},
                    {Sockets, count(Sockets)},
                    {Times, count(Times)},
                    {Events, count(Events)},
                    {Min, count(Min)},
                    {Max, count(Max)},
                    {Avg, io_lib:format("~.1f", [Avg])},
                    {Timeouts, count(Timeouts)},
                    {Sleeps, count(Sleeps)},
                    {Asleep, percent(Asleep)},
                    part(polling, Pollset),
                    counted(age_us, Pollset),
                    counted(woken_by_thread, Pollset),
                    counted(woken_by_process, Pollset),
                    counted(contended, Pollset),
                    counted(asked_away, Pollset),
                    counted(moved_in, Pollset)
                ]
             || #{pollset := Number, sockets := Sockets, times := Times, revents := Events, min := Min, max := Max} =
                    Pollset <- Pollsets,
                #{avg := Avg, timeouts := Timeouts, sleeps := Sleeps, asleep := Asleep} <- [Pollset]
            ]}
    ].

%% How evenly reads are spread over the schedulers' pollsets, and how many are for owners on other schedulers. Reactors
%% are left out, because their listeners spread connections over them.
busiest(Pollsets) ->
    Own = [Pollset || #{pollset := Number} = Pollset <- Pollsets, not weir_scope_engine:is_reactors(Number)],
    Reads = [Rate || #{reads := Rate} <- Own],
    case lists:sum(Reads) of
        Sum when Sum > 0 ->
            Away = [Rate || #{asked_away := Rate} <- Own],
            [
                io_lib:format("the busiest of ~b pollsets makes ~ts of all reads", [
                    length(Own), percent(lists:max(Reads) / Sum)
                ]) ++
                    [
                        io_lib:format("; ~ts of all reads are for owners on other schedulers", [
                            percent(min(1.0, lists:sum(Away) / Sum))
                        ])
                     || Away =/= []
                    ],
                ""
            ];
        _ ->
            []
    end.

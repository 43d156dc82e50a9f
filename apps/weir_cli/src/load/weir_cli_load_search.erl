%% @doc `weir load --search': finds the highest rate that keeps a promise, by runs at many rates. With `--repeat' it
%% searches several times and reports the median and the spread.
-module(weir_cli_load_search).

-export([run/4]).

%% @doc Searches, beginning at the rate `start'. Ignores the plan's own rate. Writes the result to the file `json', if
%% there is one.
-spec run(weir_load_run:plan(), weir_load_document:about(), Search, weir_load_promise:promise()) ->
    weir_cli:outcome()
when
    Search :: #{
        start := number(),
        repeat := pos_integer(),
        pattern := weir_load_schedule:pattern(),
        text := string(),
        json => file:filename()
    }.
run(Plan, About, #{start := Start, repeat := Repeat, text := Text} = Search, Promise) ->
    try search(Repeat, Start, fun(Rate) -> try_rate(Rate, Plan, About, Search, Promise) end) of
        {End, Results} ->
            Document = document(About, Text, Results),
            case written(Search, Document) of
                ok -> outcome(End, Text, Results);
                {failed, _} = Failed -> Failed
            end
    catch
        throw:{failed, _} = Failed -> Failed;
        throw:{unoffered, _} = Unoffered -> Unoffered
    end.

%% Each further search begins at the rate that the one before has found, which saves runs.
search(Count, Start, Try) ->
    case weir_load_search:search(Try, Start) of
        {ok, #{kept := Kept} = Result} when Count > 1, Kept =/= none ->
            io:format(standard_error, "kept at ~.1f/s; searching again from there~n", [float(Kept)]),
            {End, Results} = search(Count - 1, Kept, Try),
            {End, [Result | Results]};
        {End, Result} ->
            {End, [Result]}
    end.

try_rate(Rate, #{duration := Duration} = Plan, About, #{pattern := Pattern, text := Text}, Promise) ->
    Load = {open, [{constant, Rate, Duration}], Pattern},
    case weir_cli_load_job:runs(1, Plan#{load => Load}, fun(_News) -> ok end) of
        {ok, [#{interrupted := true}]} ->
            stopped;
        {ok, Outcomes} ->
            Document = weir_load_document:new(About#{promises => [Promise]}, Outcomes),
            #{valid := Valid, promises := [#{kept := Kept, value := Value}]} = Document,
            Outcome =
                case {Valid, Kept} of
                    {false, _} -> unoffered;
                    {true, true} -> kept;
                    {true, false} -> broken
                end,
            io:format(standard_error, "~12.1f/s  ~s: ~s (~w)~n", [float(Rate), Text, Outcome, Value]),
            Outcome;
        {error, Message} ->
            throw({failed, Message});
        {unoffered, Message} ->
            throw({unoffered, Message})
    end.

document(#{scenario := Scenario, target := Target, started := Started}, Text, Results) ->
    Searches = [
        #{
            kept_rate => null(Kept),
            broken_rate => null(Broken),
            limit => Limit,
            tries => [#{rate => Rate, outcome => Outcome} || {Rate, Outcome} <- Tries]
        }
     || #{kept := Kept, broken := Broken, limit := Limit, tries := Tries} <- Results
    ],
    #{kept := Kept, broken := Broken, limit := Limit} = median(Results),
    #{
        schema => 1,
        scenario => Scenario,
        target => Target,
        started => Started,
        search => #{
            promise => list_to_binary(Text),
            kept_rate => null(Kept),
            broken_rate => null(Broken),
            limit => Limit,
            spread => [null(Rate) || Rate <- spread(Results)],
            searches => Searches
        }
    }.

%% The search with the median rate. A search that found no rate counts as the lowest.
median(Results) ->
    Ordered = lists:sort(fun(#{kept := A}, #{kept := B}) -> rank(A) =< rank(B) end, Results),
    lists:nth((length(Ordered) + 1) div 2, Ordered).

spread(Results) ->
    Kept = lists:sort(fun(A, B) -> rank(A) =< rank(B) end, [Rate || #{kept := Rate} <- Results]),
    [hd(Kept), lists:last(Kept)].

rank(none) -> 0;
rank(Rate) -> Rate.

null(none) -> null;
null(Rate) -> Rate.

written(#{json := File}, Document) ->
    case file:write_file(File, weir_json:encode(Document)) of
        ok -> ok;
        {error, Reason} -> {failed, ["cannot write ", File, ": ", file:format_error(Reason)]}
    end;
written(#{}, _Document) ->
    ok.

outcome(End, Text, Results) ->
    case {End, median(Results)} of
        {stopped, #{kept := none}} -> interrupted;
        {stopped, Middle} -> tell(Text, Middle, Results), interrupted;
        {ok, #{kept := none, limit := generator}} -> {unoffered, ["the generator could offer no rate to test ", Text]};
        {ok, #{kept := none}} -> {failed, ["no rate keeps ", Text]};
        {ok, Middle} -> tell(Text, Middle, Results)
    end.

tell(Text, #{kept := Kept} = Middle, Results) ->
    io:format("~s holds at ~.1f/s~s~n", [Text, float(Kept), above(Middle)]),
    case {Results, spread(Results)} of
        {[_], _} -> ok;
        {_, [none, Most]} -> io:format("in ~b searches: at no rate to ~.1f/s~n", [length(Results), float(Most)]);
        {_, [Least, Most]} ->
            Format = "in ~b searches: at ~.1f/s to ~.1f/s, a spread of ~.1f % of the median~n",
            io:format(Format, [length(Results), float(Least), float(Most), 100 * (Most - Least) / Kept])
    end.

above(#{broken := none}) ->
    ", and no rate was found that breaks it";
above(#{broken := Broken, limit := server}) ->
    io_lib:format(" and is broken at ~.1f/s", [float(Broken)]);
above(#{broken := Broken, limit := generator}) ->
    io_lib:format("; the generator could not offer ~.1f/s", [float(Broken)]).

%% @doc `weir load --search': runs at many rates, and the highest that keeps a promise.
-module(weir_cli_load_search).

-export([run/4]).

%% @doc Searches from a rate on. The plan's own rate does not count. `json' names a file for what was found.
-spec run(weir_load_run:plan(), weir_load_document:about(), Search, weir_load_promise:promise()) ->
    weir_cli:outcome()
when
    Search :: #{
        start := number(),
        pattern := weir_load_schedule:pattern(),
        text := string(),
        json => file:filename()
    }.
run(#{duration := Duration} = Plan, About, #{start := Start, pattern := Pattern, text := Text} = Search, Promise) ->
    Try = fun(Rate) ->
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
        end
    end,
    try weir_load_search:search(Try, Start) of
        {End, Result} ->
            Document = document(About, Text, Result),
            case written(Search, Document) of
                ok -> outcome(End, Text, Result);
                {failed, _} = Failed -> Failed
            end
    catch
        throw:{failed, _} = Failed -> Failed;
        throw:{unoffered, _} = Unoffered -> Unoffered
    end.

document(#{scenario := Scenario, target := Target, started := Started}, Text, Result) ->
    #{kept := Kept, broken := Broken, limit := Limit, tries := Tries} = Result,
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
            tries => [#{rate => Rate, outcome => Outcome} || {Rate, Outcome} <- Tries]
        }
    }.

null(none) -> null;
null(Rate) -> Rate.

written(#{json := File}, Document) ->
    case file:write_file(File, weir_load_json:encode(Document)) of
        ok -> ok;
        {error, Reason} -> {failed, ["cannot write ", File, ": ", file:format_error(Reason)]}
    end;
written(#{}, _Document) ->
    ok.

outcome(stopped, _Text, #{kept := none}) -> interrupted;
outcome(stopped, Text, Result) -> tell(Text, Result), interrupted;
outcome(ok, Text, #{kept := none, limit := generator}) -> {unoffered, ["the generator keeps no rate, ", Text]};
outcome(ok, Text, #{kept := none}) -> {failed, ["no rate keeps ", Text]};
outcome(ok, Text, Result) -> tell(Text, Result).

tell(Text, #{kept := Kept, broken := none}) ->
    io:format("~s holds at ~.1f/s, and no rate was found that breaks it~n", [Text, float(Kept)]);
tell(Text, #{kept := Kept, broken := Broken, limit := server}) ->
    io:format("~s holds at ~.1f/s and is broken at ~.1f/s~n", [Text, float(Kept), float(Broken)]);
tell(Text, #{kept := Kept, broken := Broken, limit := generator}) ->
    io:format("~s holds at ~.1f/s; the generator could not offer ~.1f/s~n", [Text, float(Kept), float(Broken)]).

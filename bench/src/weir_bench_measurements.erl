%% @doc Writes figures into a document that people write: what stands between `<!-- NAME -->' and `<!-- /NAME -->' is
%% made from results, for the scenario of that name; the rest is left alone. Two more names are known: `results', what
%% was measured where, and `targets'.
-module(weir_bench_measurements).

-export([update/1]).
-export([places/1]).
-export([fill/3]).

%% @doc Writes the results of these files into docs/measurements.md, and their charts beside it. Where two files of the
%% same OTP release have a scenario, the later counts; one that is in none of them stays as it is.
-spec update([file:filename(), ...]) -> {ok, [Written :: file:filename()]} | {error, iodata()}.
update(Files) ->
    File = weir_bench_tree:measurements(),
    case {weir_bench_suite:read(), read(Files), file:read_file(File)} of
        {{ok, Suite}, {ok, Results}, {ok, Text}} ->
            Charts = filename:rootname(File),
            case fill(Text, Results, Suite) of
                {ok, Filled, Pictures} ->
                    write([{File, Filled} | [{filename:join(Charts, Name), Svg} || {Name, Svg} <- Pictures]]);
                {error, Reason} -> {error, [File, ": ", Reason]}
            end;
        {{error, _} = Error, _, _} ->
            Error;
        {_, {error, _} = Error, _} ->
            Error;
        {_, _, {error, Reason}} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

read(Files) ->
    lists:foldl(
        fun
            (File, {ok, Read}) ->
                case weir_bench_results:read(File) of
                    {ok, Document} -> {ok, Read ++ [{filename:rootname(filename:basename(File)), Document}]};
                    {error, _} = Error -> Error
                end;
            (_File, Error) ->
                Error
        end,
        {ok, []},
        Files
    ).

write(Files) ->
    lists:foldl(
        fun
            ({File, Content}, {ok, Written}) ->
                ok = filelib:ensure_dir(File),
                case weir_bench_tree:replace(File, Content) of
                    ok -> {ok, Written ++ [File]};
                    {error, Reason} -> {error, ["cannot write ", File, ": ", file:format_error(Reason)]}
                end;
            (_, Error) ->
                Error
        end,
        {ok, []},
        Files
    ).

%% @doc The names of the places in a text, in their order; an error where one does not end.
-spec places(binary()) -> {ok, [binary()]} | {error, iodata()}.
places(Text) ->
    case re:run(Text, "^<!-- (/?[a-z0-9-]+) -->$", [global, multiline, {capture, all_but_first, binary}]) of
        nomatch -> {ok, []};
        {match, Marks} -> pairs([Mark || [Mark] <- Marks])
    end.

pairs([]) ->
    {ok, []};
pairs([Name, <<"/", Name/binary>> | Marks]) ->
    case pairs(Marks) of
        {ok, Names} -> {ok, [Name | Names]};
        {error, _} = Error -> Error
    end;
pairs([Mark | _]) ->
    {error, ["<!-- ", Mark, " --> has no end or no beginning, or another stands in it"]}.

%% @doc A text with its places filled, and the charts that it shows. Results are documents by the name of their file.
-spec fill(binary(), [{string(), weir_bench_results:document()}], weir_bench_suite:suite()) ->
    {ok, binary(), [{file:filename(), Svg :: binary()}]} | {error, iodata()}.
fill(Text, Results, #{scenarios := Scenarios}) ->
    Known = maps:from_list([{atom_to_binary(Name), Scenario} || #{name := Name} = Scenario <- Scenarios]),
    case places(Text) of
        {ok, Names} ->
            case [Name || Name <- Names, Name =/= <<"results">>, Name =/= <<"targets">>, not is_map_key(Name, Known)] of
                [] ->
                    {Filled, Pictures} = lists:foldl(
                        fun(Name, {SoFar, Shown}) ->
                            case block(Name, Results, Known) of
                                none -> {SoFar, Shown};
                                {Block, More} -> {put_between(Name, Block, SoFar), Shown ++ More}
                            end
                        end,
                        {Text, []},
                        Names
                    ),
                    {ok, Filled, Pictures};
                [Unknown | _] ->
                    {error, ["there is no scenario ", Unknown]}
            end;
        {error, _} = Error ->
            Error
    end.

put_between(Name, Block, Text) ->
    Begin = <<"<!-- ", Name/binary, " -->\n">>,
    End = <<"<!-- /", Name/binary, " -->">>,
    [Before, Rest] = binary:split(Text, Begin),
    [_, After] = binary:split(Rest, End),
    iolist_to_binary([Before, Begin, unicode:characters_to_binary(Block), End, After]).

block(<<"results">>, Results, _Known) ->
    {
        [
            [
                "- [", Name, "](../bench/results/", Name, ".md): ",
                lists:join("; ", [
                    [What, " ", Value]
                 || {What, Value} <- weir_bench_report:machine(Document), What =/= "cores"
                ]),
                "\n"
            ]
         || {Name, Document} <- Results
        ],
        []
    };
block(<<"targets">>, Results, _Known) ->
    {
        [
            [Otp, weir_bench_table:markdown(Header, Rows), "\n"]
         || {Name, Document} <- Results,
            {Header, [_ | _] = Rows} <- [weir_bench_report:targets(Document)],
            Otp <- [["OTP ", weir_bench_results:release(Document), ", ", Name, ":\n\n"]]
        ],
        []
    };
block(Name, Results, Known) ->
    #{title := Title, metrics := Metrics} = map_get(Name, Known),
    %% By release; of several the last.
    %% Results of before kept no list of what to show.
    Shown = #{<<"metrics">> => [atom_to_binary(Metric) || Metric <- Metrics]},
    Measured = maps:from_list([
        {weir_bench_results:release(Document), maps:merge(Shown, Scenario)}
     || {_, #{<<"scenarios">> := Scenarios} = Document} <- Results,
        #{<<"name">> := Of} = Scenario <- Scenarios, Of =:= Name
    ]),
    case lists:sort(maps:to_list(Measured)) of
        [] ->
            none;
        ByRelease ->
            Parts = [part(Name, Release, Scenario) || {Release, Scenario} <- ByRelease],
            {
                [
                    "### ", Title, "\n\n    bin/weir bench --only ", Name, "\n\n",
                    lists:join("\n", [Markdown || {Markdown, _} <- Parts])
                ],
                lists:append([Pictures || {_, Pictures} <- Parts])
            }
    end.

part(Name, Release, Scenario) ->
    {[_ | Header], Rows} = weir_bench_report:table(Scenario),
    {Image, Pictures} =
        case weir_bench_chart:svg(Scenario) of
            {ok, Svg} ->
                File = <<Name/binary, "-otp", Release/binary, ".svg">>,
                {
                    ["![", Name, " on OTP ", Release, "](measurements/", File, ")\n\n"],
                    [{binary_to_list(File), unicode:characters_to_binary(Svg)}]
                };
            none ->
                {"", []}
        end,
    {
        [
            Image,
            weir_bench_table:markdown([["OTP ", Release] | Header], Rows),
            [["\n", Note, "\n"] || Note <- weir_bench_report:notes(Scenario)]
        ],
        Pictures
    }.

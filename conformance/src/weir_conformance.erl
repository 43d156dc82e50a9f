%% @doc Runs OTP's own TCP suites on stock gen_tcp and on Weir and compares them case by case. `scripts/conformance'
%% starts it.
%%
%% Every suite runs in its own node, first on stock, then with `weir_tcp' as the VM's TCP module. Cases that differ
%% without a known reason run again on both sides, and the better of two results counts: a busy machine can decide
%% some cases of these suites.
-module(weir_conformance).

-export([main/0]).

%% Milliseconds after which a suite counts as hanging. Suites take a minute or two, gen_tcp_misc four to seven. The
%% limit leaves time for two of its cases to reach their own limit of four minutes.
-define(LIMIT, 900_000).

%% @doc Runs the suites and halts: with 1 if a case is worse without a reason. The arguments after `-extra' are the
%% unpacked source of OTP, a working directory, a directory for the table, and the suites if not all.
-spec main() -> no_return().
main() ->
    [Source, Work, Kept | Names] = init:get_plain_arguments(),
    Reasons = weir_conformance_reasons:read(
        filename:join(code:priv_dir(?MODULE), "differences.terms"), filename:join("docs", "differences.md")
    ),
    Suites = suites(Names),
    build(Source, Work),
    Rows = in_lanes(Suites, fun(Suite) -> compare(Suite, Work, Reasons) end),
    io:put_chars(["\n", weir_conformance_table:text(Rows)]),
    case Names of
        [] -> keep(Kept, Rows);
        _ -> ok
    end,
    halt(
        case [Row || Row = #{verdict := worse, reason := undefined} <- Rows] of
            [] -> 0;
            _ -> 1
        end
    ).

%% The longest suite takes as long as all others together, and all mostly wait, so it runs beside them.
in_lanes(Suites, Compare) ->
    {Longest, Others} = lists:partition(fun(Suite) -> Suite =:= gen_tcp_misc_SUITE end, Suites),
    Main = self(),
    {Lane, Monitor} = spawn_monitor(fun() -> Main ! {self(), lists:flatmap(Compare, Longest)} end),
    Rows = lists:flatmap(Compare, Others),
    receive
        {Lane, RowsOfLongest} ->
            true = demonitor(Monitor, [flush]),
            Rows ++ RowsOfLongest;
        {'DOWN', Monitor, process, Lane, Reason} ->
            exit(Reason)
    end.

suites([]) ->
    weir_conformance_suites:all();
suites(Names) ->
    case
        [Name || Name <- Names, not lists:member(Name, [atom_to_list(Suite) || Suite <- weir_conformance_suites:all()])]
    of
        [] ->
            [list_to_atom(Name) || Name <- Names];
        Unknown ->
            say("unknown suites: ~p; valid: ~p", [Unknown, weir_conformance_suites:all()]),
            halt(2)
    end.

build(Source, Work) ->
    lists:foreach(
        fun(Side) ->
            say("building OTP's suites for ~s", [Side]),
            weir_conformance_suites:build(Source, directory(Work, Side, "suites"), compiler_options(Side))
        end,
        [stock, weir]
    ).

compiler_options(stock) -> [];
compiler_options(weir) -> [{parse_transform, weir_conformance_transform}].

keep(Directory, Rows) ->
    Version = otp_version(),
    [Release | _] = string:split(Version, "."),
    Title = ["OTP's suites on OTP ", Version, " and on Weir"],
    File = filename:join(Directory, ["otp-", Release, ".md"]),
    ok = file:write_file(File, unicode:characters_to_binary(weir_conformance_table:markdown(Title, about(), Rows))).

about() ->
    "Written by `make conformance`. A case is worse for a difference that "
    "[docs/differences.md](../../docs/differences.md)\n"
    "names, by the row that is quoted. \"Sockets on Weir\" are those that the case has asked for; "
    "a case without any says nothing\n"
    "about Weir. What is changed in the copies of the suites that run on Weir stands in\n"
    "`weir_conformance_transform`.\n".

otp_version() ->
    File = filename:join([code:root_dir(), "releases", erlang:system_info(otp_release), "OTP_VERSION"]),
    {ok, Version} = file:read_file(File),
    string:trim(binary_to_list(Version)).

directory(Work, Side, Name) -> filename:join([Work, atom_to_list(Side), Name]).

compare(Suite, Work, Reasons) ->
    First = on_both(Suite, Work, all),
    Outcomes =
        case [Case || {Case, {Stock, Weir}} <- First, differ(Stock, Weir), not is_map_key({Suite, Case}, Reasons)] of
            [] -> First;
            Cases -> lists:zipwith(fun best/2, First, on_both_again(Suite, Work, Cases, First))
        end,
    [
        weir_conformance_table:row(Suite, Case, Stock, Weir, maps:get({Suite, Case}, Reasons, undefined))
     || {Case, {Stock, Weir}} <- Outcomes
    ].

differ(Stock, Weir) ->
    lists:member(weir_conformance_verdict:of_results(Stock, Weir), [better, worse]).

best({Case, {Stock, Weir}}, {Case, {StockAgain, WeirAgain}}) ->
    {Case, {weir_conformance_verdict:best(Stock, StockAgain), weir_conformance_verdict:best(Weir, WeirAgain)}}.

on_both_again(Suite, Work, Cases, First) ->
    Again = maps:from_list(on_both(Suite, Work, Cases)),
    [
        case lists:member(Case, Cases) of
            true -> {Case, maps:get(Case, Again, {absent, absent})};
            false -> Outcome
        end
     || Outcome = {Case, _} <- First
    ].

on_both(Suite, Work, Cases) ->
    Stock = on_side(stock, Suite, Work, Cases),
    Weir = on_side(weir, Suite, Work, Cases),
    Names = lists:usort(maps:keys(Stock) ++ maps:keys(Weir)),
    [{Name, {maps:get(Name, Stock, absent), maps:get(Name, Weir, absent)}} || Name <- Names].

on_side(Side, Suite, Work, Cases) ->
    Directories = #{
        suites => directory(Work, Side, "suites"),
        logs => filename:join(directory(Work, Side, "logs"), atom_to_list(Suite))
    },
    {Time, Results} = timer:tc(fun() -> weir_conformance_node:run(Side, Suite, Cases, Directories, ?LIMIT) end),
    Passed = length([passed || #{result := passed} <- maps:values(Results)]),
    say("~s on ~s: ~b of ~b cases passed, ~b s", [Suite, Side, Passed, map_size(Results), Time div 1_000_000]),
    Results.

say(Format, Arguments) -> io:format("conformance: " ++ Format ++ "~n", Arguments).

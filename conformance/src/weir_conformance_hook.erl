%% @doc A Common Test hook that writes the outcome of each case and its number of sockets to a file, one term a line.
%% Lines that a node has written before it crashes are kept.
-module(weir_conformance_hook).

-export([init/2]).
-export([pre_init_per_testcase/4]).
-export([post_end_per_testcase/5]).
-export([on_tc_fail/4]).
-export([on_tc_skip/4]).

-export_type([event/0]).

-type case_name() :: {Suite :: module(), Case :: atom()}.

-type event() ::
    {started, case_name()}
    | {ended, case_name(), OnWeir :: non_neg_integer(), Elsewhere :: non_neg_integer()}
    | {failed, case_name(), Reason :: string()}
    | {skipped, case_name(), Reason :: string()}.
%% A case passes if it ends without having failed or been skipped. A case that did not end has crashed the node.

-record(state, {file :: file:filename(), only :: [atom()], counts = {0, 0} :: {integer(), integer()}}).

%% @doc Called by Common Test with the name of the file and the cases to run ([] for all). Other cases are skipped in
%% all groups and not written.
%%
%% The priority makes this hook run after OTP's own hook, which does not expect that another hook skips a case.
-spec init(term(), {file:filename(), Only :: [atom()]}) -> {ok, #state{}, Priority :: integer()}.
init(_Id, {File, Only}) ->
    ok = weir_conformance_gen_tcp:start_counting(),
    {ok, #state{file = File, only = Only}, 1000}.

-spec pre_init_per_testcase(module(), atom(), Config, #state{}) -> {Config | {skip, passed_over}, #state{}}.
pre_init_per_testcase(Suite, Case, Config, State = #state{only = Only}) ->
    case Only =:= [] orelse lists:member(Case, Only) of
        true -> started(Suite, Case, Config, State);
        false -> {{skip, passed_over}, State}
    end.

started(Suite, Case, Config, State) ->
    write(State, {started, {Suite, Case}}),
    {Config, State#state{counts = weir_conformance_gen_tcp:counts()}}.

-spec post_end_per_testcase(module(), atom(), term(), Result, #state{}) -> {Result, #state{}}.
post_end_per_testcase(Suite, Case, _Config, Result, State = #state{counts = {OnWeir, Elsewhere}}) ->
    {OnWeirNow, ElsewhereNow} = weir_conformance_gen_tcp:counts(),
    write(State, {ended, {Suite, Case}, OnWeirNow - OnWeir, ElsewhereNow - Elsewhere}),
    {Result, State}.

-spec on_tc_fail(module(), atom() | {atom(), term()}, term(), #state{}) -> #state{}.
on_tc_fail(Suite, Case, Reason, State) ->
    came_to(failed, Suite, Case, Reason, State).

-spec on_tc_skip(module(), atom() | {atom(), term()}, term(), #state{}) -> #state{}.
on_tc_skip(_Suite, _Case, {tc_user_skip, passed_over}, State) ->
    State;
on_tc_skip(Suite, Case, Reason, State) ->
    came_to(skipped, Suite, Case, Reason, State).

%% Common Test adds the group to the name of a case in a group. Failures of configuration functions show in their
%% cases.
came_to(Result, Suite, {Case, _Group}, Reason, State) ->
    came_to(Result, Suite, Case, Reason, State);
came_to(_Result, _Suite, Function, _Reason, State) when
    Function =:= init_per_suite; Function =:= end_per_suite; Function =:= init_per_group; Function =:= end_per_group
->
    State;
came_to(Result, Suite, Case, Reason, State) ->
    write(State, {Result, {Suite, Case}, lists:flatten(io_lib:format("~0tp", [Reason]))}),
    State.

-spec write(#state{}, event()) -> ok.
write(#state{file = File}, Event) ->
    ok = file:write_file(File, unicode:characters_to_binary(io_lib:format("~0tp.~n", [Event])), [append]).

%% @private
%% @doc The name of a process. Parts of it are in the process dictionary, which may be large, as that of a reactor with
%% all its connections, and would be copied whole. So from OTP 26.2 on this reads single keys, and before that only the
%% dictionaries of small processes.
-module(weir_scope_process).

-export([name/2]).

-type name() :: #{name := atom() | mfa(), label => term()}.

%% A process of at most this many bytes has a small dictionary.
-define(SMALL, 500_000).

%% @doc Returns the registered name or the initial function, and the label if there is one. Returns `gone' if the
%% process has ended.
-spec name(weir_scope_facts:ask(), pid()) -> name() | gone.
name(Ask, Pid) ->
    case Ask(erlang, process_info, [Pid, [registered_name, initial_call, memory]]) of
        undefined -> gone;
        [{_, Name}, {_, Call}, {_, Memory}] -> named(Name, Call, said(Ask, Pid, Memory))
    end.

named(Name, Call, Said) ->
    Own = #{name => case Name of [] -> maps:get('$initial_call', Said, Call); _ -> Name end},
    case Said of
        #{'$process_label' := Label} -> Own#{label => Label};
        _ -> Own
    end.

said(Ask, Pid, Memory) ->
    try Ask(erlang, process_info, [Pid, [{dictionary, Key} || Key <- ['$initial_call', '$process_label']]]) of
        undefined -> #{};
        Keys -> maps:from_list([{Key, Value} || {{dictionary, Key}, Value} <- Keys, Value =/= undefined])
    catch
        error:badarg -> dictionary(Ask, Pid, Memory)
    end.

dictionary(Ask, Pid, Memory) when Memory =< ?SMALL ->
    case Ask(erlang, process_info, [Pid, dictionary]) of
        {dictionary, Dictionary} -> maps:with(['$initial_call', '$process_label'], maps:from_list(Dictionary));
        undefined -> #{}
    end;
dictionary(_Ask, _Pid, _Memory) ->
    #{}.

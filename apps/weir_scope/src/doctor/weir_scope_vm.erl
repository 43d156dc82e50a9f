%% @doc Facts of the VM about itself: limits, schedulers, memory.
-module(weir_scope_vm).

-export([facts/1]).

%% @doc Returns the facts:
%% <dl>
%% <dt>`otp'</dt><dd>`[Major, Minor, ...]', as in the file OTP_VERSION, or `[Major]'</dd>
%% <dt>`ports', `processes', `atoms'</dt><dd>`{Number, Limit}'</dd>
%% <dt>`schedulers'</dt><dd>`{Online, All}'</dd>
%% <dt>`run_queue'</dt><dd>processes and ports that are ready to run and wait</dd>
%% <dt>`scheduler_poll'</dt><dd>whether schedulers poll busy sockets themselves (`+IOs')</dd>
%% <dt>`processors'</dt><dd>logical processors that the VM may use</dd>
%% <dt>`memory'</dt><dd>bytes, as `erlang:memory/0' has them</dd>
%% <dt>`carriers', `blocks'</dt><dd>bytes that the allocators have from the system, and how many of them are used</dd>
%% <dt>`weir'</dt><dd>`none', or the number of pollsets</dd>
%% </dl>
-spec facts(weir_scope_facts:ask()) -> weir_scope_facts:facts().
facts(Ask) ->
    Info = fun(Item) -> Ask(erlang, system_info, [Item]) end,
    Allocators = weir_scope_memory:allocators(Ask),
    known(#{
        node => Ask(erlang, node, []),
        otp => version(Ask),
        ports => {Info(port_count), Info(port_limit)},
        processes => {Info(process_count), Info(process_limit)},
        atoms => {Info(atom_count), Info(atom_limit)},
        schedulers => {Info(schedulers_online), Info(schedulers)},
        run_queue => Ask(erlang, statistics, [total_run_queue_lengths]),
        %% A poll set without poll threads is the one that schedulers poll.
        scheduler_poll => lists:any(fun(Set) -> proplists:get_value(poll_threads, Set) =:= 0 end, Info(check_io)),
        processors => Info(logical_processors_available),
        memory => maps:from_list(Ask(erlang, memory, [])),
        carriers => lists:sum([Carriers || #{carriers := Carriers} <- Allocators]),
        blocks => lists:sum([Blocks || #{blocks := Blocks} <- Allocators]),
        weir => weir(Ask)
    }).

known(Facts) ->
    maps:filter(fun(_, Value) -> Value =/= unknown end, Facts).

version(Ask) ->
    Release = Ask(erlang, system_info, [otp_release]),
    File = filename:join([Ask(code, root_dir, []), "releases", Release, "OTP_VERSION"]),
    case Ask(file, read_file, [File]) of
        {ok, Text} -> numbers(binary_to_list(Text));
        {error, _} -> numbers(Release)
    end.

%% `25.2.3', `29.1.2-rc1': the numbers before the first hyphen.
numbers(Text) ->
    [Version | _] = string:lexemes(Text, "-\n"),
    [list_to_integer(Part) || Part <- string:lexemes(Version, ".")].

%% Only calls weir where it runs, so that no module is loaded.
weir(Ask) ->
    case Ask(erlang, whereis, [weir_sup]) of
        undefined -> none;
        _ -> length(Ask(weir, pollsets, []))
    end.
